"""Refuse placeholder releases, and those years behind the newest.

Only wheels are taken, and uv goes back until it finds one: of deepspeed, whose releases are sources, to 0.3.1.dev3 of
2020. Asked without this limit, uv names the newest release; an index may tell the day of each upload.
"""

from collections.abc import Iterable

from packaging.pylock import Package, PackageSdist, PackageWheel
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rdma_images.core.errors import RefusedError
from rdma_images.inputs import index_queries
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import LockRequest

OLD_YEARS = 2  # behind the newest release: what nobody means who names no version


def require_current(
    taken: Iterable[tuple[Package, PackageWheel | PackageSdist]], request: LockRequest, index: str, mirrors: Mirrors
) -> None:
    """Refuse releases that uv took only because newer ones have no wheel.

    Args:
        taken: What uv took from the index, each package with its file.
        request: Its requirements; one that names a version is taken as it is.

    Raises:
        RefusedError: One is a placeholder, or years behind its newest release.
        RdmaImagesError: The index does not answer.
    """
    unnamed = {canonicalize_name(line.name) for line in map(Requirement, request.requirements) if not line.specifier}
    by_name = {package.name: (package, file) for package, file in taken if package.name in unnamed}
    if by_name:
        texts = {"requirements.in": "\n".join(by_name)}
        options = ("--no-config", "--no-deps", "--universal", "--python-version", request.python)
        for newest in index_queries.compile_requirements("the newest releases", texts, options, index, mirrors):
            _require_current(*by_name[newest.name], newest)


def _require_current(package: Package, file: PackageWheel | PackageSdist, newest: Package) -> None:
    """Refuse a placeholder or an old release, by the newest one."""
    name, version, newest_version = package.name, package.version or Version("0"), newest.version or Version("0")
    newest_uploaded = max(
        (f.upload_time for f in (newest.sdist, *(newest.wheels or ())) if f and f.upload_time), default=None
    )
    years = (newest_uploaded - file.upload_time).days / 365 if file.upload_time and newest_uploaded else 0.0
    is_renamed = version.release[:2] == (0, 0) and not newest.wheels and newest_version.release[:2] != (0, 0)
    if not any(version.release) or is_renamed:
        reason = "a placeholder, with nothing in it"
    elif newest_version > version and years > OLD_YEARS:
        reason = f"{years:.0f} years older than {newest_version}, the newest release"
    elif newest_version > version and version.is_prerelease:
        reason = f"a pre-release older than {newest_version}, the newest release"
    else:
        return
    fix = f"name another version of {name}"
    if not newest.wheels:
        fix = f"name {name} under source-packages, where {newest_version} is"
    raise RefusedError(
        f"{name} {version} is {reason}: uv takes wheels alone\n{fix}; or, if this one is meant, {name}=={version}"
    )
