"""The releases of the packages that a target asks for, on the package index: whether a lock took what people mean.

Only wheels are taken, and a resolver goes back until it finds one: of deepspeed, whose releases are sources, to
0.3.1.dev3 of 2020. The index tells every release with its files and, where it knows it, the day of each upload.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import requests
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from rdma_images.core.errors import RefusedError
from rdma_images.inputs import web
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Lock

JSON = "application/vnd.pypi.simple.v1+json"  # PEP 691
TIMEOUT = (5.0, 20.0)  # seconds to connect, seconds without a byte
PLACEHOLDER = Version("0.0.0")  # a name that is reserved, and nothing in it
OLD_DAYS = 730  # behind the newest release: what nobody means who names no version


@dataclass(frozen=True)
class PackageRelease:
    """A package of a target as it was locked, beside its newest release on the index; "" for what is not known."""

    name: str
    version: str
    size: int  # bytes
    newest: str = ""
    newest_is_source: bool = False  # the newest release has no wheel
    days_behind: int = 0

    @property
    def warning(self) -> str:
        """What to know before it is built; "" for nothing."""
        if self.newest_is_source and self.version != self.newest:
            return f"{self.newest} is there as source alone: name {self.name} under source-packages to have it built"
        return ""


def locked_releases(lock: Lock, packages: Iterable[str], index: str, mirrors: Mirrors) -> tuple[PackageRelease, ...]:
    """Return the packages that a target names, as they were locked.

    Args:
        packages: The target's python-packages, as requirements.

    Raises:
        RefusedError: The lock took a placeholder, or a release years behind the newest one, of a package whose version
            the target does not name.
    """
    wheels = {canonicalize_name(wheel.name): wheel for wheel in lock.wheels}
    releases = []
    for requirement in map(Requirement, packages):
        wheel = wheels.get(canonicalize_name(requirement.name))
        if wheel is None:  # of a marker that is not so here
            continue
        release = _compared(wheel.name, wheel.version, wheel.size, _files(wheel.name, index, mirrors))
        if not requirement.specifier:
            _require_meant(release)
        releases.append(release)
    return tuple(releases)


def _require_meant(release: PackageRelease) -> None:
    if Version(release.version) == PLACEHOLDER:
        what = f"{release.name} {release.version} is a placeholder, with nothing in it"
    elif release.days_behind > OLD_DAYS:
        years = release.days_behind / 365
        what = f"{release.name} {release.version} is {years:.0f} years older than {release.newest}, the newest release"
    else:
        return
    newer = f"name {release.name} under source-packages, where {release.newest} is" if release.newest_is_source else ""
    fix = newer or f"name another version: {release.name}=={release.newest}"
    same = f"or, if this one is meant, {release.name}=={release.version}"
    raise RefusedError(f"{what}: the resolver takes wheels alone\n{fix}; {same}")


def _compared(name: str, version: str, size: int, listed: Iterable[dict[str, Any]]) -> PackageRelease:
    uploads: dict[Version, datetime | None] = {}
    with_wheel = set()
    for found, file in _versions(listed):
        if file["filename"].endswith(".whl"):
            with_wheel.add(found)
        time = file.get("upload-time")
        uploads[found] = datetime.fromisoformat(time.replace("Z", "+00:00")) if time else uploads.get(found)
    newest = max((found for found in uploads if not found.is_prerelease), default=None)
    if newest is None:
        return PackageRelease(name, version, size)
    ours, theirs = uploads.get(Version(version)), uploads[newest]
    days = (theirs - ours).days if ours and theirs and newest > Version(version) else 0
    return PackageRelease(name, version, size, str(newest), newest not in with_wheel, days)


def _versions(listed: Iterable[dict[str, Any]]) -> Iterator[tuple[Version, dict[str, Any]]]:
    """Yield each file that is not yanked with its version; what has no name of a release is left out."""
    for file in listed:
        name = file["filename"]
        try:
            parsed = parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
        except (ValueError, InvalidVersion):
            continue
        if not file.get("yanked"):
            yield parsed, file


def _files(name: str, index: str, mirrors: Mirrors) -> list[dict[str, Any]]:
    """Return the index's files of a package; none from an index that does not list them as JSON."""
    try:
        with web.request("GET", f"{index.rstrip('/')}/{name}/", mirrors, TIMEOUT, {"Accept": JSON}) as answer:
            listed = answer.json().get("files", [])
    except (requests.RequestException, web.StatusError, ValueError, AttributeError):
        return []
    return [file for file in listed if isinstance(file, dict) and isinstance(file.get("filename"), str)]
