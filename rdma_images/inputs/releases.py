"""Refuse a locked release that nobody means: a placeholder, or one years behind the newest.

Only wheels are taken, and uv goes back until it finds one: of deepspeed, whose releases are sources, to 0.3.1.dev3 of
2020. The index tells every release with its files and, where it knows it, the day of each upload.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.inputs import wheel_files
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Lock

OLD_YEARS = 2  # behind the newest release: what nobody means who names no version

Uploads = dict[Version, list[dict[str, Any]]]
"""The files of each release, as the index lists them."""


def require_current(lock: Lock, packages: Iterable[str], index: str, mirrors: Mirrors) -> None:
    """Refuse releases that uv took only because newer ones have no wheel.

    Args:
        lock: What uv took.
        packages: The target's python-packages, as requirements; one that names a version is taken as it is.
        index: The package index's address.
        mirrors: Logins and certificates for it.

    Raises:
        RefusedError: The lock has a placeholder, or a release years behind the newest one.
    """
    wheels = {canonicalize_name(wheel.name): wheel for wheel in lock.wheels}
    for requirement in map(Requirement, packages):
        wheel = wheels.get(canonicalize_name(requirement.name))
        if wheel is None or wheel.origin or requirement.specifier:
            continue
        try:
            index_files = wheel_files.index_files(wheel.name, index, mirrors)
        except RdmaImagesError:  # an index that does not answer refuses nothing
            continue
        require_current_release(wheel.name, Version(wheel.version), index_files)


def require_current_release(name: str, version: Version, index_files: Iterable[dict[str, Any]]) -> None:
    """Refuse a placeholder or an old release, by the index's files of the package."""
    releases: Uploads = {}
    for release, file in _versions(index_files):
        releases.setdefault(release, []).append(file)
    newest = max((release for release in releases if not release.is_prerelease), default=version)
    is_source = newest in releases and not any(file["filename"].endswith(".whl") for file in releases[newest])
    uploaded, newest_uploaded = _last_upload(releases, version), _last_upload(releases, newest)
    years = (newest_uploaded - uploaded).days / 365 if uploaded and newest_uploaded else 0.0
    if not any(version.release) or (version.release[:2] == (0, 0) and is_source and newest.release[:2] != (0, 0)):
        reason = "a placeholder, with nothing in it"
    elif newest > version and years > OLD_YEARS:
        reason = f"{years:.0f} years older than {newest}, the newest release"
    elif newest > version and version.is_prerelease:
        reason = f"a pre-release older than {newest}, the newest release"
    else:
        return
    fix = f"name {name} under source-packages, where {newest} is" if is_source else f"name another version of {name}"
    raise RefusedError(
        f"{name} {version} is {reason}: uv takes wheels alone\n{fix}; or, if this one is meant, {name}=={version}"
    )


def _last_upload(releases: Uploads, version: Version) -> datetime | None:
    """Return when a release was last uploaded, in UTC; None where the index does not tell."""
    times = []
    for file in releases.get(version, ()):
        with suppress(ValueError):
            times.append(datetime.fromisoformat(str(file.get("upload-time")).removesuffix("Z")).replace(tzinfo=UTC))
    return max(times, default=None)


def _versions(index_files: Iterable[dict[str, Any]]) -> Iterator[tuple[Version, dict[str, Any]]]:
    """Yield each usable file of the index with its version, without yanked ones."""
    for file in index_files:
        name = file["filename"]
        with suppress(ValueError):
            parsed = parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
            if not file.get("yanked"):
                yield parsed, file
