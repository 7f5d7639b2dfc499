"""Locks between processes: the second one waits, and its user reads which process it waits for."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import state_folder
from rdma_images.core.progress import Progress, silent


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    what: str  # "invoke build --target efa-pytorch"
    pid: int
    since: str  # ISO 8601, UTC

    def __str__(self) -> str:
        return f"process {self.pid} ({self.what}) since {self.since}"


@contextmanager
def hold(name: str, purpose: str, progress: Progress = silent, patience: float | None = None) -> Iterator[None]:
    """Hold the lock `name` of this state folder while the body runs.

    The kernel keeps the lock (flock) and lets go of it with the process, so a dead holder never stops anyone; the
    file's text only says who holds it. Waits for ever, or for `patience` seconds and then raises RdmaImagesError.
    """
    path = _path(name)
    lock = _locked(path, name, progress, patience)
    try:
        us = Holder(purpose, os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))
        os.ftruncate(lock, 0)
        os.write(lock, json.dumps(asdict(us)).encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def holder(name: str) -> Holder | None:
    """Return who holds the lock `name`; None when it is free."""
    path = _path(name)
    try:
        lock = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        return None if _try(lock) else _read(path)
    finally:
        os.close(lock)


def holders() -> dict[str, Holder]:
    """Return every lock that is held, by name."""
    names = [path.name for path in files.entries(_path(""))]
    return {name: who for name in names if (who := holder(name))}


def _path(name: str) -> Path:
    return state_folder() / "locks" / name


def _locked(path: Path, name: str, progress: Progress, patience: float | None) -> int:
    """Return the open, locked file at `path`."""
    begun = time.monotonic()
    reported = False
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        # Who held it before has removed its file: a lock on that one would keep nobody out.
        if _try(lock) and _is(lock, path):
            return lock
        os.close(lock)
        who = _read(path) or "another process"
        if patience is not None and time.monotonic() - begun >= patience:
            raise RdmaImagesError(f"{name} is held by {who}\nwait for it to end, or end it")
        if not reported and who != "another process":
            progress(f"waiting for {name}: held by {who}")
            reported = True
        time.sleep(0.05)


def _try(lock: int) -> bool:
    """Lock the open file; False where another has."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(lock: int, path: Path) -> bool:
    """Return the open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _read(path: Path) -> Holder | None:
    """Return who the file says; None in the moment between taking the lock and signing it."""
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
