"""Download and verify the sources of a build; later builds use the same files."""

import re
import shutil
import tarfile
import threading
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rdma_images import components
from rdma_images.core import locking, versions
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress, silent
from rdma_images.core.source import UNPINNED, Source, Supply
from rdma_images.inputs import download_store, mirrors, openpgp
from rdma_images.inputs.download import DownloadSettings, download
from rdma_images.inputs.mirrors import Mirrors

PARALLEL = 4
# Autoconf writes both near the beginning of every configure.
_VERSION = re.compile(rb"^PACKAGE_VERSION='([^'\n]*)'$", re.MULTILINE)
MAX_FILES = 20_000  # the largest release, 1.21.1, has 763
CONFIGURE_READ = 1 << 20  # bytes of configure to search: the version is in the first 25,000


class ChecksumError(RdmaImagesError):
    """The downloaded file is not the pinned one."""


def fetch(supplies: Iterable[Supply], mirror_settings: Mirrors, progress: Progress = silent) -> dict[str, Path]:
    """Download and verify every source that is a file.

    Raises RdmaImagesError for a failed download, ChecksumError and openpgp.SignatureError for a file that is not the
    pinned one, TarballError for one that cannot be built. A refused file is not kept.

    Returns:
        By source id, a folder that has this file alone.
    """
    downloads = {s.source.id: s for s in supplies if s.source.kind == "download" and s.via != "stand-in"}
    stop = threading.Event()
    with ThreadPoolExecutor(PARALLEL) as pool:
        jobs = [
            (s.source, pool.submit(_fetch_supply, s, DownloadSettings(s.source.id, mirror_settings, progress, stop)))
            for s in downloads.values()
        ]
        try:
            return {source.id: job.result().parent for source, job in jobs}
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def digest(source: Source, mirror_settings: Mirrors, progress: Progress = silent) -> str:
    """Return the "sha256:…" of a source without a published checksum, for `invoke lock`.

    Raises TarballError for a file that cannot be built: it must not be pinned.
    """
    folder = _partial_folder(source)
    file = folder / download_store.file_name(source.upstream)
    address = mirror_settings.address(source) or source.upstream
    download(address, file, DownloadSettings(source.id, mirror_settings, progress))
    try:
        check_tarball(source, file, address)
        return f"sha256:{download_store.digest(file, 'sha256')}"
    finally:
        shutil.rmtree(folder)


def _fetch_supply(supply: Supply, settings: DownloadSettings) -> Path:
    """Return the verified file of one supply."""
    source = supply.source
    with locking.hold(f"download-{source.id}", f"downloading {source.id}", settings.progress):
        # Asked again under the lock: another run may have downloaded it while this one waited.
        if (file := download_store.cached_file(source)) and download_store.intact(file):
            return file
        if source.pin == UNPINNED:
            raise RdmaImagesError(
                f"{source.id}: its checksum is not known\nrun `{COMMAND} lock`, which downloads it once and pins it"
            )
        address = supply.address if supply.via != "cache" else (settings.mirrors.address(source) or source.upstream)
        return _download_source(source, address, settings)


def _download_source(source: Source, address: str, settings: DownloadSettings) -> Path:
    """Download, verify and keep a source.

    Resume an earlier run's partial file, and start anew where that does not verify.
    """
    folder = _partial_folder(source)
    file = folder / download_store.file_name(source.upstream)
    resumed = file.exists()
    settings.progress(f"{source.id}: {'resuming' if resumed else 'downloading'} {address}")
    download(address, file, settings)
    try:
        _verify(source, address, file, settings)
        check_tarball(source, file, address)
    except (ChecksumError, openpgp.SignatureError, TarballError):
        shutil.rmtree(folder)
        if resumed:
            return _download_source(source, address, settings)
        raise
    path = download_store.save(source, file, file.name)
    shutil.rmtree(folder)
    return path


def _verify(source: Source, address: str, file: Path, settings: DownloadSettings) -> None:
    """Raise ChecksumError or openpgp.SignatureError, with the expected and the actual value."""
    kind, _, value = source.pin.partition(":")
    if kind in ("sha256", "sha512"):
        actual = download_store.digest(file, kind)
        if actual != value:
            raise ChecksumError(
                f"{source.id}: {address} is not the pinned file: expected {source.pin}, found {kind}:{actual}\n"
                "do not use the file: its server or mirror has another one; nothing was kept"
            )
        return
    companions = {}
    for part in ("signature", "key"):
        companions[part] = file.with_name(f"{file.name}.{part}")
        companions[part].unlink(missing_ok=True)  # small, and never resumed
        signature_address = mirrors.sibling_address(address, source.upstream, source.extra[part])
        download(signature_address, companions[part], replace(settings, name=f"the {part} of {source.id}"))
    openpgp.check(file, companions["signature"], companions["key"], value, f"{source.id} from {address}")


def _partial_folder(source: Source) -> Path:
    """Return the folder of a partial download, which a later run resumes."""
    folder = download_store.root() / "partial" / source.id
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class TarballError(RdmaImagesError):
    """The file is not the release tarball that its name promises."""


def check_tarball(source: Source, file: Path, address: str) -> None:
    """Raise TarballError unless `file` is a release tarball of the source's version.

    `address` is where it was downloaded. Components without a `configure` are not checked.
    """
    component = components.BY_NAME.get(source.component)
    if not (component and component.has_configure):
        return
    version = source.id.removeprefix(f"{source.component}-")
    fix = f"\ntake the release tarball of {version}: {source.upstream}"
    try:
        problem = _find_problem(version, file)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise TarballError(f"{source.id}: {address} is no gzip-compressed tarball: {error}{fix}") from None
    if problem:
        raise TarballError(f"{source.id}: {address} {problem}{fix}")


def _find_problem(version: str, file: Path) -> str | None:
    """Return the problem of the tarball, as the end of a sentence; None where there is none."""
    names: set[str] = set()
    with tarfile.open(file, "r:gz") as archive:
        for number, member in enumerate(archive):
            _, _, name = member.name.removeprefix("./").partition("/")
            names.add(name)
            if name == "configure" and (script := archive.extractfile(member)):
                return _version_problem(version, script.read(CONFIGURE_READ))
            if number == MAX_FILES:
                return f"has no configure among its first {MAX_FILES} files"
    tree = "configure.ac" in names
    return f"has no configure{': it is a copy of the repository, which has no configure' if tree else ''}"


def _version_problem(version: str, configure: bytes) -> str | None:
    """Return what is wrong with the version in a configure script; None for nothing."""
    match = _VERSION.search(configure)
    declared = match[1].decode("utf-8", "replace") if match else ""
    if not declared:
        return "has a configure that states no version"
    try:
        is_same = versions.sort_key(declared) == versions.sort_key(version)
    except ValueError:  # a build from the repository: "git-2daf7d30"
        is_same = False
    return None if is_same else f"is of version {declared}, by its configure"
