"""Locks between processes; who waits reads which process holds the lock.

Every command imports this module, and few take a lock: only those import filelock, which loads decimal and secrets.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import state_folder
from rdma_images.core.progress import Progress, silent

ASKING_SECONDS = 0.5  # for `holders`, which takes each lock for a moment


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

    purpose: str  # "invoke build --target efa-pytorch"
    pid: int
    since: str  # ISO 8601, UTC

    def __str__(self) -> str:
        return f"process {self.pid} ({self.purpose}) since {self.since}"


@contextmanager
def hold(name: str, purpose: str, progress: Progress = silent, timeout: float | None = None) -> Iterator[None]:
    """Hold the lock `name` of this state folder while the body runs.

    The kernel keeps the lock (flock) and lets go of it with the process, so a dead holder never stops anyone; the
    file's text only says who holds it. Waits for ever, or for about `timeout` seconds and then raises RdmaImagesError.
    """
    from filelock import FileLock, Timeout

    path = lock_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if timeout != 0:
            progress(f"waiting for {name}: held by {_read_holder(path) or 'another process'}")
        try:
            lock.acquire(timeout=-1 if timeout is None else max(timeout, ASKING_SECONDS))
        except Timeout:
            owner = _read_holder(path) or "another process"
            raise RdmaImagesError(f"{name} is held by {owner}\nwait for it to end, or end it") from None
    try:
        us = Holder(purpose, os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))
        with contextlib.suppress(OSError):  # of a full disk: the kernel keeps the lock, and the text is for people
            path.write_text(json.dumps(asdict(us)), encoding="utf-8")
        yield
    finally:
        path.unlink(missing_ok=True)  # filelock takes no lock on a file that is gone
        lock.release()


def holders() -> dict[str, Holder]:
    """Return every lock that is held, by name."""
    by_name = {}
    for path in files.list_folder(lock_path("")):
        from filelock import FileLock, Timeout

        try:
            with FileLock(path, blocking=False):
                path.unlink(missing_ok=True)
        except Timeout:
            if owner := _read_holder(path):
                by_name[path.name] = owner
    return by_name


def lock_path(name: str) -> Path:
    """Return the file of a lock."""
    return state_folder() / "locks" / name


def _read_holder(path: Path) -> Holder | None:
    """Return the holder in the lock's file; None while it is not written yet."""
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
