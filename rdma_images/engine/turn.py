"""One at a time: who comes second waits, and is told for whom."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rdma_images.engine.model import Progress, silent
from rdma_images.errors import RdmaImagesError
from rdma_images.paths import state_folder


@dataclass(frozen=True)
class Holder:
    """Who has the turn."""

    what: str  # "invoke build --target efa-pytorch"
    pid: int
    since: str  # ISO 8601, UTC

    def __str__(self) -> str:
        return f"process {self.pid} ({self.what}) since {self.since}"


@contextmanager
def take(name: str, what: str, progress: Progress = silent, patience: float | None = None) -> Iterator[None]:
    """Hold the turn `name` of this state folder while the body runs.

    The kernel keeps the lock (flock) and lets go of it with the process, so a dead holder never stops anyone; the
    file's text only says who holds it. Waits for ever, or for `patience` seconds and then raises RdmaImagesError.
    """
    path = state_folder() / "turns" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        _wait(file.fileno(), path, name, progress, patience)
        holder = Holder(what, os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))
        file.truncate(0)
        file.write(json.dumps(asdict(holder)))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def holder(name: str) -> Holder | None:
    """Who holds the turn `name`; None when it is free."""
    path = state_folder() / "turns" / name
    try:
        with path.open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read(path)
    except FileNotFoundError:
        pass
    return None


def _wait(lock: int, path: Path, name: str, progress: Progress, patience: float | None) -> None:
    """Come back with the lock held."""
    begun = time.monotonic()
    told = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = _read(path) or "another process"
            if patience is not None and time.monotonic() - begun >= patience:
                raise RdmaImagesError(f"{name} is held by {who}: wait for it to end, or end it") from None
            if not told:
                progress(f"waiting for {name}: held by {who}")
                told = True
            time.sleep(0.1)
        else:
            return


def _read(path: Path) -> Holder | None:
    """Who the file says; None in the moment between taking the lock and signing it."""
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
