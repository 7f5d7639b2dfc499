"""Compare locked packages with their releases, and refuse placeholders and old ones.

Only wheels are taken, and a resolver goes back until it finds one: of deepspeed, whose releases are sources, to
0.3.1.dev3 of 2020. The index tells every release with its files and, where it knows it, the day of each upload.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import requests
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from rdma_images.core.errors import RefusedError
from rdma_images.core.plain import decode_json
from rdma_images.inputs import web
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Lock

# PEP 691, and PEP 503 for the indexes that know no JSON.
ACCEPT = {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.1"}
ANCHOR = re.compile(r"<a\b[^>]*>\s*([^<\s]+)\s*</a>", re.IGNORECASE)
INDEX_TIMEOUT_SECONDS = (5.0, 20.0)  # seconds to connect, seconds without a byte
EMPTY = 16 * 1024  # bytes of a wheel without content: transformer-engine 0.0.0 has 1,097
OLD_DAYS = 730  # behind the newest release: what nobody means who names no version


@dataclass(frozen=True)
class PackageRelease:
    """A locked package beside its newest release; "" for what is not known."""

    name: str
    version: str
    size: int  # bytes
    newest: str = ""
    newest_is_source: bool = False  # the newest release has no wheel
    newest_size: int = 0  # bytes of its largest file; 0 where the index does not tell
    days_behind: int | None = 0  # None where the index does not tell when releases were uploaded

    @property
    def is_behind(self) -> bool:
        """Return whether there is a newer release."""
        return bool(self.newest) and Version(self.newest) > Version(self.version)

    @property
    def is_placeholder(self) -> bool:
        """Return whether the locked release only reserves the package's name."""
        release = Version(self.version).release
        if not any(release):
            return True
        is_next_to_nothing = self.size < EMPTY and (not self.newest_size or 4 * self.size < self.newest_size)
        return release[:2] == (0, 0) and self.is_behind and self.newest_is_source and is_next_to_nothing

    @property
    def warning(self) -> str:
        """Return the warning for whoever builds it; "" for none."""
        if self.newest_is_source and self.version != self.newest:
            return f"{self.newest} is there as source alone: name {self.name} under source-packages to have it built"
        if self.is_behind and self.days_behind is None:
            return f"{self.newest} is newer; the index does not tell by how long"
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
        if wheel is None or wheel.origin:  # of a marker that is not so here; of no index
            continue
        release = compare_releases(wheel.name, wheel.version, wheel.size, listed_files(wheel.name, index, mirrors))
        if not requirement.specifier:
            _require_plausible(release)
        releases.append(release)
    return tuple(releases)


def _require_plausible(release: PackageRelease) -> None:
    newest = f"{release.newest}, the newest release"
    if release.is_placeholder:
        reason = "a placeholder, with nothing in it"
    elif release.days_behind and release.days_behind > OLD_DAYS:
        reason = f"{release.days_behind / 365:.0f} years older than {newest}"
    elif release.is_behind and Version(release.version).is_prerelease:
        reason = f"a pre-release older than {newest}"
    else:
        return
    newer = f"name {release.name} under source-packages, where {release.newest} is" if release.newest_is_source else ""
    fix = newer or f"name another version: {release.name}=={release.newest}"
    pin_advice = f"or, if this one is meant, {release.name}=={release.version}"
    raise RefusedError(
        f"{release.name} {release.version} is {reason}: the resolver takes wheels alone\n{fix}; {pin_advice}"
    )


def compare_releases(name: str, version: str, size: int, index_files: Iterable[dict[str, Any]]) -> PackageRelease:
    """Return what the index has of a package beside the version of an image."""
    files: dict[Version, list[dict[str, Any]]] = {}
    for release, file in _versions(index_files):
        files.setdefault(release, []).append(file)
    newest = max((release for release in files if not release.is_prerelease), default=None)
    if newest is None:
        return PackageRelease(name, version, size)
    current_upload, newest_upload = (_last_upload(files.get(release, ())) for release in (Version(version), newest))
    days = (newest_upload - current_upload).days if current_upload and newest_upload else None
    return PackageRelease(
        name,
        version,
        size,
        newest=str(newest),
        newest_is_source=not any(file["filename"].endswith(".whl") for file in files[newest]),
        newest_size=max(file["size"] if isinstance(file.get("size"), int) else 0 for file in files[newest]),
        days_behind=days if newest > Version(version) else 0,
    )


def _last_upload(files: Iterable[dict[str, Any]]) -> datetime | None:
    """Return the time, in UTC, of a release's last upload; None where unknown."""
    times = []
    for file in files:
        with suppress(ValueError):
            times.append(datetime.fromisoformat(str(file.get("upload-time")).removesuffix("Z")).replace(tzinfo=UTC))
    return max(times, default=None)


def _versions(index_files: Iterable[dict[str, Any]]) -> Iterator[tuple[Version, dict[str, Any]]]:
    """Yield each usable file of the index with its version, without yanked ones."""
    for file in index_files:
        name = file["filename"]
        try:
            parsed = parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
        except ValueError:
            continue
        if not file.get("yanked"):
            yield parsed, file


def listed_files(name: str, index: str, mirrors: Mirrors) -> list[dict[str, Any]]:
    """Return the index's files of a package; none where it does not answer."""
    try:
        with web.request("GET", f"{index.rstrip('/')}/{name}/", mirrors, INDEX_TIMEOUT_SECONDS, ACCEPT) as response:
            if "html" in response.headers.get("Content-Type", ""):
                return [{"filename": file} for file in ANCHOR.findall(response.text)]
            listed = decode_json(response.content).get("files")
    except (requests.RequestException, web.StatusError, ValueError, AttributeError):
        return []
    entries = listed if isinstance(listed, list) else []
    return [file for file in entries if isinstance(file, dict) and isinstance(file.get("filename"), str)]
