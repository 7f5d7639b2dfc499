"""Downloads, verified on this machine before a build sees them, and kept by their content for every later build."""

import shutil
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rdma_images import mirrors, openpgp, store
from rdma_images.download import Job, download
from rdma_images.engine import turn
from rdma_images.engine.model import Progress, silent
from rdma_images.errors import RdmaImagesError
from rdma_images.mirrors import Mirrors
from rdma_images.model import Source, Supply
from rdma_images.sources import UNPINNED

PARALLEL = 4


class ChecksumError(RdmaImagesError):
    """What came is not what is pinned."""


def fetch(supplies: Iterable[Supply], replaced: Mirrors, progress: Progress = silent) -> dict[str, Path]:
    """Have every download verified on this machine; the folder of each, which holds nothing else, by source id.

    Raises RdmaImagesError for what does not arrive, ChecksumError and openpgp.SignatureError for what is not what is
    pinned; of that nothing is kept.
    """
    wanted = {s.source.id: s for s in supplies if s.source.kind == "download" and s.via != "stand-in"}
    stop = threading.Event()
    with ThreadPoolExecutor(PARALLEL) as pool:
        jobs = [(s.source, pool.submit(_one, s, Job(s.source.id, replaced, progress, stop))) for s in wanted.values()]
        try:
            return {source.id: job.result().parent for source, job in jobs}
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def digest(source: Source, replaced: Mirrors, progress: Progress = silent) -> str:
    """The "sha256:…" of a source that nobody pins, for `invoke lock` to write down; keeps no file."""
    folder = _work(source)
    file = folder / store.file_name(source.upstream)
    download(replaced.address(source) or source.upstream, file, Job(source.id, replaced, progress))
    found = f"sha256:{store.digest(file, 'sha256')}"
    shutil.rmtree(folder)
    return found


def _one(supply: Supply, job: Job) -> Path:
    """The verified file of one supply."""
    source = supply.source
    with turn.take(f"download-{source.id}", f"downloading {source.id}", job.progress):
        # Asked again inside the turn: another run may have brought it while this one waited.
        if (file := store.kept(source)) and store.intact(file):
            return file
        if source.pin == UNPINNED:
            raise RdmaImagesError(f"{source.id}: nobody states its checksum: `invoke lock` writes it down once")
        address = supply.address if supply.via != "cache" else (job.mirrors.address(source) or source.upstream)
        return _bring(source, address, job)


def _bring(source: Source, address: str, job: Job) -> Path:
    """Download, verify, keep. A part that an earlier run left is gone on with, or given up when it does not fit."""
    folder = _work(source)
    file = folder / store.file_name(source.upstream)
    went_on = file.exists()
    job.progress(f"{source.id}: {'going on with' if went_on else 'fetching'} {address}")
    download(address, file, job)
    try:
        _verify(source, address, file, job)
    except (ChecksumError, openpgp.SignatureError):
        shutil.rmtree(folder)
        if went_on:
            return _bring(source, address, job)
        raise
    kept = store.keep(source, file, file.name)
    shutil.rmtree(folder)
    return kept


def _verify(source: Source, address: str, file: Path, job: Job) -> None:
    """Raise ChecksumError or openpgp.SignatureError, saying what was expected and what came."""
    kind, _, value = source.pin.partition(":")
    if kind in ("sha256", "sha512"):
        found = store.digest(file, kind)
        if found != value:
            raise ChecksumError(
                f"{source.id}: {address} is not the pinned file: expected {source.pin}, found {kind}:{found}; "
                "nothing was kept"
            )
        return
    beside = {}
    for what in ("signature", "key"):
        beside[what] = file.with_name(f"{file.name}.{what}")
        beside[what].unlink(missing_ok=True)  # small, and never to be gone on with
        there = mirrors.beside(address, source.upstream, source.extra[what])
        download(there, beside[what], replace(job, name=f"the {what} of {source.id}"))
    openpgp.check(file, beside["signature"], beside["key"], value, f"{source.id} from {address}")


def _work(source: Source) -> Path:
    """Where a download grows; it stays there when the connection is lost, for the next run to go on from."""
    folder = store.root() / "partial" / source.id
    folder.mkdir(parents=True, exist_ok=True)
    return folder
