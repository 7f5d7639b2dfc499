"""Download and verify the sources of a build; later builds use the same files."""

import shutil
import tarfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rdma_images.core import locking
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress, silent
from rdma_images.core.source import UNPINNED, Source, Supply
from rdma_images.inputs import download_store, openpgp
from rdma_images.inputs.download import ChecksumError, DownloadSettings, download, download_verified
from rdma_images.inputs.mirrors import Mirrors, sibling_address

PARALLEL = 4


def fetch(supplies: Iterable[Supply], mirrors: Mirrors, progress: Progress = silent) -> dict[str, Path]:
    """Download and verify every source that is a file.

    Raises RdmaImagesError for a failed download, ChecksumError for a file that is not the pinned one.

    Returns:
        By source id, a folder that has this file alone.
    """
    downloads = {s.source.id: s for s in supplies if s.source.kind == "download" and s.via != "stand-in"}
    stop = threading.Event()
    with ThreadPoolExecutor(PARALLEL) as pool:
        jobs = [
            (s.source, pool.submit(_fetch_supply, s, DownloadSettings(s.source.id, mirrors, progress, stop)))
            for s in downloads.values()
        ]
        try:
            return {source.id: job.result().parent for source, job in jobs}
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def fetch_digest(source: Source, mirrors: Mirrors, progress: Progress = silent) -> str:
    """Return the "sha256:…" of a source without a published checksum, for `invoke lock`."""
    folder = _partial_folder(source)
    file = folder / download_store.file_name(source.upstream)
    file.unlink(missing_ok=True)  # nothing could verify a part that is resumed
    address = mirrors.address(source) or source.upstream
    download(address, file, DownloadSettings(source.id, mirrors, progress))
    try:
        if file.name.endswith(".tar.gz") and not tarfile.is_tarfile(file):
            raise RdmaImagesError(f"{source.id}: {address} is no tarball\nname another address in mirrors.yaml")
        return f"sha256:{download_store.file_digest(file, 'sha256')}"
    finally:
        shutil.rmtree(folder)


def _fetch_supply(supply: Supply, settings: DownloadSettings) -> Path:
    """Return the verified file of one supply."""
    source = supply.source

    def find_address() -> str:
        """Return the supply's address, or the source's own where the file that was there is damaged."""
        if source.pin == UNPINNED:
            raise RdmaImagesError(
                f"{source.id}: its checksum is not known\nrun `{COMMAND} lock`, which downloads it once and pins it"
            )
        address = supply.address if supply.via != "cache" else (settings.mirrors.address(source) or source.upstream)
        settings.progress(f"{source.id}: downloading {address}")
        return address

    return fetch_file(source, find_address, settings)


def fetch_file(source: Source, find_address: Callable[[], str], settings: DownloadSettings) -> Path:
    """Return the verified file of a source; an earlier run's partial file is resumed.

    Args:
        find_address: Returns the address where the file is to be downloaded, and is not called otherwise.

    Raises:
        RdmaImagesError: The file does not arrive.
        ChecksumError: It is not the pinned one; nothing is kept.
    """
    with locking.hold(f"download-{source.id}", f"downloading {source.id}", settings.progress):
        # Asked again under the lock: another run may have downloaded it while this one waited.
        file = download_store.cached_file(source)
        if file and download_store.file_digest(file, "sha256") == file.parent.name:
            return file
        address = find_address()
        part = _partial_folder(source) / download_store.file_name(source.upstream)
        download_verified(address, part, settings, lambda file: _verify(source, address, file, settings))
        path = download_store.save(source, part, part.name)
        shutil.rmtree(part.parent)
        return path


def _verify(source: Source, address: str, file: Path, settings: DownloadSettings) -> None:
    """Raise ChecksumError or openpgp.SignatureError, with the expected and the actual value."""
    kind, _, value = source.pin.partition(":")
    if kind in ("sha256", "sha512"):
        actual = download_store.file_digest(file, kind)
        if actual != value:
            raise ChecksumError(
                f"{source.id}: {address} is not the pinned file: expected {source.pin}, found {kind}:{actual}\n"
                "do not use the file: its server or mirror has another one; nothing was kept"
            )
        return
    companions = {}
    for part, part_address in (("signature", source.signature), ("key", source.key)):
        companions[part] = file.with_name(f"{file.name}.{part}")
        companions[part].unlink(missing_ok=True)  # small, and never resumed
        signature_address = sibling_address(address, source.upstream, part_address)
        download(signature_address, companions[part], replace(settings, name=f"the {part} of {source.id}"))
    openpgp.check(file, companions["signature"], companions["key"], value, f"{source.id} from {address}")


def _partial_folder(source: Source) -> Path:
    """Return the folder of a partial download, which a later run resumes."""
    folder = download_store.store_folder() / "partial" / source.id
    folder.mkdir(parents=True, exist_ok=True)
    return folder
