"""The sources of components, before any mirror and any lock."""

from rdma_images.core.pipeline import ARCHIVE_SIGNATURE, UNPINNED, Source


def download_source(
    name: str, version: str, upstream: str, pin: str = UNPINNED, extra: dict[str, str] | None = None
) -> Source:
    """Return the source of a file to download and verify; without a pin, the lock has it."""
    return Source(
        id=f"{name}-{version}",
        component=name,
        kind="download",
        upstream=upstream,
        pin=pin,
        context=name,
        extra=extra or {},
    )


def apt_source(name: str, role: str, upstream: str, suites: list[str], components: str, keyring: str) -> Source:
    """Return the source of an apt archive that a stage installs from; `role` is that of the stage's secrets for it."""
    return Source(
        id=f"{name}-{suites[0].removesuffix('-security')}",
        component=name,
        kind="apt",
        upstream=upstream.rstrip("/"),
        pin=ARCHIVE_SIGNATURE,
        extra={"role": role, "suites": " ".join(suites), "components": components, "signed-by": keyring},
    )
