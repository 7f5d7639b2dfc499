"""Where a component's own bytes come from, before any mirror and any lock."""

from rdma_images.core.pipeline import ARCHIVE_SIGNATURE, UNPINNED, Source


def download(
    name: str, version: str, upstream: str, pin: str = UNPINNED, extra: dict[str, str] | None = None
) -> Source:
    """A file that this machine downloads, verifies and hands to the build; without a pin, the lock has it."""
    return Source(
        id=f"{name}-{version}",
        component=name,
        kind="download",
        upstream=upstream,
        pin=pin,
        context=name,
        extra=extra or {},
    )


def apt(name: str, role: str, upstream: str, suites: list[str], components: str, keyring: str) -> Source:
    """An apt archive that a stage installs from; `role` is that of the secrets with which the stage reaches it."""
    return Source(
        id=f"{name}-{suites[0].removesuffix('-security')}",
        component=name,
        kind="apt",
        upstream=upstream.rstrip("/"),
        pin=ARCHIVE_SIGNATURE,
        extra={"role": role, "suites": " ".join(suites), "components": components, "signed-by": keyring},
    )
