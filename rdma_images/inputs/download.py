"""Download one file: resumed where the server allows it, and retried where that may help."""

import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path

import requests
from urllib3.exceptions import HTTPError

from rdma_images.core import http
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import megabytes
from rdma_images.inputs import web
from rdma_images.inputs.mirrors import Mirrors

TIMEOUT = (10.0, 30.0)  # seconds to connect, seconds without a byte
TRIES = 4
PAUSE = 0.5  # seconds before the second try, doubled before each next
CHUNK = 1 << 16  # bytes; a lost connection loses less than one chunk. 16 kB took 1.5 times the processor time
REPORT_EVERY = 5.0  # seconds between two progress lines for one file


class _CutError(Exception):
    """The connection ended before the file did."""


@dataclass(frozen=True)
class Job:
    """What a download needs beside its address. Messages call it `name`; setting `stop` ends it."""

    name: str
    mirrors: Mirrors
    progress: Progress = silent
    stop: threading.Event = field(default_factory=threading.Event)


def download(address: str, file: Path, job: Job) -> None:
    """Download `address` to `file`, resuming a partial `file`.

    Raises RdmaImagesError for an answer that no retry changes, and after TRIES tries. The partial file stays, for the
    next run to resume.
    """
    if source := web.local(address):
        _copy(source, file, job)
        return
    waits = 0

    def wait(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if job.stop.wait(seconds):
            raise RdmaImagesError(f"{job.name}: stopped, because another download failed")

    def say(line: str) -> None:
        job.progress(f"{job.name}: {line}")

    patience = http.Patience(TRIES - 1, http.FAILING, absent=True, first_wait=PAUSE, say=say, wait=wait)
    while True:
        try:
            _once(address, file, job, replace(patience, retries=TRIES - 1 - waits))
            return
        except (web.StatusError, requests.RequestException) as error:
            raise _failed(address, job, web.reason(error, job.mirrors), waits + 1) from None
        except _CutError as error:
            if waits + 1 == TRIES:
                raise _failed(address, job, str(error), TRIES) from None
            pause = http.pause(waits + 1, PAUSE, patience.longest_wait)
            say(f"{error}: retrying in {pause:.1f} s")
            wait(pause)


def _failed(address: str, job: Job, why: str, tries: int) -> RdmaImagesError:
    counted = f" ({tries} tries)" if tries > 1 else ""
    return RdmaImagesError(f"{job.name}: {address}: {why}{counted}\ntry later, or name another address in mirrors.yaml")


def _copy(source: Path, file: Path, job: Job) -> None:
    try:
        shutil.copyfile(source, file)
    except OSError as error:
        raise RdmaImagesError(f"{job.name}: {source}: {error.strerror}\nname another address in mirrors.yaml") from None


def _once(address: str, file: Path, job: Job, patience: http.Patience) -> None:
    """Try once, resuming at the end of the partial file. After an error the file keeps what was received."""
    have = file.stat().st_size if file.exists() else 0
    mark = file.with_name(file.name + ".etag")
    headers = {"Range": f"bytes={have}-"} if have else {}
    if have and mark.exists():
        headers["If-Range"] = mark.read_text()
    try:
        with web.request("GET", address, job.mirrors, TIMEOUT, headers, patience) as answer:
            if not http.continues(answer, have):
                have = 0
            mark.unlink(missing_ok=True)
            if etag := answer.headers.get("ETag"):
                mark.write_text(etag)
            _pour(answer, file, have, job)
    except web.StatusError as error:
        if error.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            file.unlink()
            raise _CutError("the partial file does not belong to this download") from None
        raise


def _pour(answer: requests.Response, file: Path, have: int, job: Job) -> None:
    """Write the body after the first `have` bytes. Raises _CutError where it is shorter than announced."""
    length = answer.headers.get("Content-Length", "")
    total = have + int(length) if length.isdigit() else None
    total_part = f" of {megabytes(total)}" if total else ""
    reported = time.monotonic()
    with file.open("r+b" if have else "wb") as stream:
        stream.seek(have)
        stream.truncate()
        for chunk in _chunks(answer):
            stream.write(chunk)
            have += len(chunk)
            if job.stop.is_set():
                raise RdmaImagesError(f"{job.name}: stopped, because another download failed")
            if time.monotonic() - reported > REPORT_EVERY:
                reported = time.monotonic()
                job.progress(f"{job.name}: {megabytes(have)}{total_part}")
    if total is not None and have < total:
        raise _CutError(f"the connection ended after {have} of {total} bytes")


def _chunks(answer: requests.Response) -> Iterator[bytes]:
    """Yield the body in chunks. Raises _CutError where the connection breaks or times out."""
    try:
        yield from answer.iter_content(CHUNK)
    except (requests.RequestException, HTTPError) as error:
        raise _CutError(http.why(error)) from None
