"""The state of Debian's archive that a base is built from, in a file under locks/debian/.

A snapshot service (or a mirror of it) serves the archive as it was at a moment. The lock has that moment and the
digests of the signed release files there: they name every index, and the indexes every package, by its SHA-256.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from rdma_images.core import atomic, files, paths, yaml_file
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress, silent
from rdma_images.core.source import Source
from rdma_images.engine.debian import bootstrap, debian_packages, host_apt
from rdma_images.inputs.mirrors import Mirrors

if TYPE_CHECKING:  # a plan does not wait for an HTTP client
    from rdma_images.inputs.reachable import Reachability

COMPONENT = "debian-snapshot"
ADDRESS_FIX = (
    f"name Debian's snapshot service, or a mirror of it, in mirrors.yaml: `{COMPONENT}: https://HOST/archive`"
    " (docs/guides/mirrors.md)"
)
_FIELDS = re.compile(r"^(Package|Version|Architecture|SHA256): (.*)$", re.MULTILINE)


class DebianPackage(yaml_file.Strict):
    """A package of the archive, with the SHA-256 of its .deb."""

    name: str
    version: str
    architecture: str
    sha256: str


class DebianLock(yaml_file.Strict):
    """locks/debian/<base>.json; `packages` are those of validated images on this base."""

    snapshot: str = Field(pattern=r"^\d{8}T\d{6}Z$")
    archive: str  # digest over all signed release files, as a bootstrapped base has it
    releases: dict[str, str]  # suite -> sha256 of its InRelease
    packages: tuple[DebianPackage, ...] = ()

    def text(self) -> str:
        """Return the lock file: one package a line, so that a change reads well."""
        head = json.dumps(self.model_dump(mode="json", exclude={"packages"}), indent=2).removesuffix("\n}")
        packages = ",\n".join(f"    {json.dumps(package.model_dump())}" for package in self.packages)
        return f'{head},\n  "packages": [\n{packages}\n  ]\n}}\n'


def path(base: str) -> Path:
    """Return where the lock of a base is written."""
    return paths.LOCKS / "debian" / f"{base}.json"


def read_lock(base: str) -> DebianLock | None:
    """Return the lock of a base; None for a base made from the archive of the day."""
    file = path(base)
    if file.is_relative_to(paths.PROJECT / "locks"):  # what the project brings serves where the user's has none
        file = paths.find_data(str(file.relative_to(paths.PROJECT)))
    return yaml_file.load(file, DebianLock) if files.exists(file) else None


def last_bootstrapped(base: str, platform: str) -> bootstrap.BootstrapRecord | None:
    """Return the base as bootstrapped last, from the locked archive if there is a lock."""
    locked = read_lock(base)
    return bootstrap.last_bootstrapped(base, platform, locked.archive if locked else "")


def bootstrapped(base: str, platform: str, mirrors: Mirrors, progress: Progress) -> Path:
    """Return the tar of a base, made from the locked archive if there is a lock."""
    locked = read_lock(base)
    snapshot = bootstrap.ArchiveSnapshot(_archives(base, locked.snapshot, mirrors), locked.archive) if locked else None
    return bootstrap.base(base, progress, platform=platform, snapshot=snapshot)


def sources(role: str, base: str, locked: DebianLock) -> Iterator[Source]:
    """Yield the archives of a locked base. Only a mirror has their address."""
    suite = bootstrap.SUITES[base].codename
    for archive, suites in (("debian", [suite, f"{suite}-updates"]), ("debian-security", [f"{suite}-security"])):
        yield Source(
            id=f"{COMPONENT}-{suites[0]}",
            component=COMPONENT,
            kind="apt",
            upstream="",
            pin=f"sha256:{locked.archive}",
            extra={
                "role": role,
                "suites": " ".join(suites),
                "components": "main",
                "signed-by": host_apt.KEYRING,
                "snapshot": f"{archive}/{locked.snapshot}",
                "releases": " ".join(locked.releases[suite] for suite in suites),
            },
        )


def query_archive(source: Source, address: str, mirrors: Mirrors) -> "Reachability":
    """Return whether a snapshot has the locked release files of its suites."""
    import requests

    from rdma_images.inputs import reachable, web

    if not address:
        return False, f"no address: {ADDRESS_FIX}"
    for suite, locked in zip(source.extra["suites"].split(), source.extra["releases"].split(), strict=True):
        try:
            with web.request(
                "GET", f"{address}/dists/{suite}/InRelease", mirrors, reachable.PREFLIGHT_TIMEOUT_SECONDS
            ) as response:
                digest = hashlib.sha256(response.content).hexdigest()
        except web.StatusError as error:
            return False, f"{suite}: {error}"
        except requests.RequestException as error:
            return False, f"{suite}: {web.describe_error(error, mirrors)}"
        if digest != locked:
            return False, f"{suite}: its InRelease has the sha256 {digest[:12]}…, and locks/debian has {locked[:12]}…"
    return True, f"as locked, {source.extra['snapshot'].rpartition('/')[2]}"


def lock(
    base: str,
    installed: Collection[str],
    mirrors: Mirrors,
    upgrade: bool = False,
    progress: Progress = silent,
) -> DebianLock:
    """Write and return the lock of a base: of today's snapshot, or the same one again.

    Args:
        base: Its name, "debian13".
        installed: Names of packages that images on it have. Those that the archive has are added to the locked ones.

    Raises:
        RefusedError: No address of a snapshot service is named.
        RdmaImagesError: It does not answer, or has another state than the locked one.
    """
    earlier_lock = read_lock(base)
    current = None if upgrade else earlier_lock
    snapshot = current.snapshot if current else f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    suite = bootstrap.SUITES[base].codename
    progress(f"reading the archive of {base} at {snapshot}")
    apt = debian_packages.updated_apt(
        suite, debian_packages.cache_path("apt", f"lock-{base}"), _archives(base, snapshot, mirrors)
    )
    releases = {_suite(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in apt.releases()}
    if current and releases != current.releases:
        raise RdmaImagesError(
            f"{path(base)}: the snapshot {snapshot} has other release files than the locked ones\n"
            f"find out which are right; `{COMMAND} lock --debian --upgrade` locks today's"
        )
    names = set(installed) | {package.name for package in (current.packages if current else ())}
    packages = [package for package in _available(apt) if package.name in names]
    locked = DebianLock(
        snapshot=snapshot,
        archive=apt.state(),
        releases=dict(sorted(releases.items())),
        packages=tuple(sorted(packages, key=lambda package: package.name)),
    )
    atomic.write(path(base), locked.text())
    return locked


def hashes(base: str) -> dict[tuple[str, str, str], str]:
    """Return the SHA-256 of the locked packages of a base, by name, version and architecture."""
    locked = read_lock(base)
    packages = locked.packages if locked else ()
    return {(package.name, package.version, package.architecture): package.sha256 for package in packages}


def _archives(base: str, snapshot: str, mirrors: Mirrors) -> host_apt.Debian:
    """Return the archives of a snapshot. Raises RefusedError where no mirror has them."""
    suite = bootstrap.SUITES[base].codename

    def archive(name: str) -> host_apt.Archive:
        source = Source(COMPONENT, COMPONENT, "apt", "", "", extra={"snapshot": f"{name}/{snapshot}"})
        if not (address := mirrors.address(source)):
            raise RefusedError(f"{COMPONENT} has no address\n{ADDRESS_FIX}")
        return host_apt.Archive(address, suite, ("main",), host_apt.KEYRING)

    return host_apt.Debian(suite, archive("debian"), archive("debian-security"), is_snapshot=True)


def _suite(release: Path) -> str:
    """Return the suite of a release file, by the name that apt gives it."""
    return release.name.rpartition("_dists_")[2].removesuffix("_InRelease")


def _available(apt: debian_packages.Apt) -> Iterator[DebianPackage]:
    """Yield the packages that apt would install, of this host's architecture."""
    for stanza in apt.run("apt-cache", "dumpavail").split("\n\n"):
        fields = dict(_FIELDS.findall(stanza))
        if len(fields) == len(DebianPackage.model_fields):
            yield DebianPackage(
                name=fields["Package"],
                version=fields["Version"],
                architecture=fields["Architecture"],
                sha256=fields["SHA256"],
            )
