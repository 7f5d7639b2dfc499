"""One file from one address: gone on with where the server can, and tried again where that may help."""

import re
import shutil
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import requests
from urllib3.exceptions import HTTPError

from rdma_images import web
from rdma_images.engine.model import Progress, silent
from rdma_images.errors import RdmaImagesError
from rdma_images.mirrors import Mirrors

TIMEOUT = (10.0, 30.0)  # seconds to connect, seconds without a byte
TRIES = 4
PAUSE = 0.5  # seconds before the second try, doubled before each next
CHUNK = 1 << 14  # bytes; less than one is lost with a connection
TELL_EVERY = 5.0  # seconds between two lines on the same file
MAY_HEAL = (408, 425, 429, 500, 502, 503, 504)


class _CutError(Exception):
    """The connection ended before the file did."""


@dataclass(frozen=True)
class Job:
    """What a download needs beside its address. `name` is what messages call it, `stop` ends it early."""

    name: str
    mirrors: Mirrors
    progress: Progress = silent
    stop: threading.Event = field(default_factory=threading.Event)


def download(address: str, file: Path, job: Job) -> None:
    """Bring the whole of `address` to `file`, after what is there of it already.

    Raises RdmaImagesError for an answer that no repetition changes, and after TRIES tries; what came stays, for
    the next run to go on from.
    """
    if source := web.local(address):
        _copy(source, file, job)
        return
    for attempt in range(1, TRIES + 1):
        try:
            _once(address, file, job)
        except web.StatusError as error:
            why, again = str(error), error.status in MAY_HEAL
        except (requests.RequestException, HTTPError) as error:
            why, again = web.reason(error, job.mirrors), not isinstance(error, requests.exceptions.SSLError)
        except _CutError as error:
            why, again = str(error), True
        else:
            return
        if not again or attempt == TRIES:
            raise RdmaImagesError(
                f"{job.name}: {address}: {why}{f' ({attempt} tries)' if attempt > 1 else ''}: try later, or name "
                "another address in mirrors.yaml"
            )
        pause = PAUSE * 2 ** (attempt - 1)
        job.progress(f"{job.name}: {why}: again in {pause:g} s")
        if job.stop.wait(pause):
            raise RdmaImagesError(f"{job.name}: stopped")


def _copy(source: Path, file: Path, job: Job) -> None:
    try:
        shutil.copyfile(source, file)
    except OSError as error:
        raise RdmaImagesError(f"{job.name}: {source}: {error.strerror}: name another address in mirrors.yaml") from None


def _once(address: str, file: Path, job: Job) -> None:
    """One try, from the end of what is there. Raises what went wrong; the file keeps what came."""
    have = file.stat().st_size if file.exists() else 0
    mark = file.with_name(file.name + ".etag")
    headers = {"Range": f"bytes={have}-"} if have else {}
    if have and mark.exists():
        headers["If-Range"] = mark.read_text()
    try:
        with web.request("GET", address, job.mirrors, TIMEOUT, headers) as answer:
            if not _continues(answer, have):
                have = 0
            mark.unlink(missing_ok=True)
            if etag := answer.headers.get("ETag"):
                mark.write_text(etag)
            _pour(answer, file, have, job)
    except web.StatusError as error:
        if error.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            file.unlink()
            raise _CutError("what was there is not the beginning of it") from None
        raise


def _continues(answer: requests.Response, have: int) -> bool:
    """Whether an answer goes on exactly where our part ends; servers may send the whole instead."""
    start = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return answer.status_code == 206 and start is not None and int(start[1]) == have


def _pour(answer: requests.Response, file: Path, have: int, job: Job) -> None:
    """Write the body behind the first `have` bytes; raises _CutError when fewer came than were announced."""
    length = answer.headers.get("Content-Length", "")
    total = have + int(length) if length.isdigit() else None
    of = f" of {total / 1e6:.0f}" if total else ""
    told = time.monotonic()
    with file.open("r+b" if have else "wb") as stream:
        stream.seek(have)
        stream.truncate()
        for chunk in answer.iter_content(CHUNK):
            stream.write(chunk)
            have += len(chunk)
            if job.stop.is_set():
                raise RdmaImagesError(f"{job.name}: stopped")
            if time.monotonic() - told > TELL_EVERY:
                told = time.monotonic()
                job.progress(f"{job.name}: {have / 1e6:.0f}{of} MB")
    if total is not None and have < total:
        raise _CutError(f"the connection ended after {have} of {total} bytes")
