"""Download one file: resumed where the server allows it, and retried where that may help."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import requests
from urllib3.exceptions import HTTPError

from rdma_images.core import http
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import format_megabytes
from rdma_images.inputs import web
from rdma_images.inputs.mirrors import Mirrors

DOWNLOAD_TIMEOUT_SECONDS = (10.0, 30.0)  # seconds to connect, seconds without a byte
TRIES = 4
PAUSE = 0.5  # seconds before the second try, doubled before each next
CHUNK = 1 << 16  # bytes; a lost connection loses less than one chunk. 16 kB took 1.5 times the processor time
REPORT_EVERY = 5.0  # seconds between two progress lines for one file


class ChecksumError(RdmaImagesError):
    """The downloaded file is not the pinned one."""


class _IncompleteError(Exception):
    """A download that ended before the file did."""


@dataclass(frozen=True)
class DownloadSettings:
    """What a download needs beside its address; `name` is used in messages."""

    name: str
    mirrors: Mirrors
    progress: Progress = silent
    stop: threading.Event = field(default_factory=threading.Event)


def download(address: str, file: Path, settings: DownloadSettings) -> None:
    """Download `address` to `file`, resuming a partial `file`.

    Raises RdmaImagesError for an answer that no retry changes, and after TRIES tries. The partial file stays, for the
    next run to resume; its verification finds one that is not of the file that the server has now.
    """
    if source := web.local_path(address):
        try:
            shutil.copyfile(source, file)
        except OSError as error:
            raise _download_error(str(source), settings, error.strerror or str(error)) from None
        return

    def wait(seconds: float) -> None:
        """Wait before a retry; raise RdmaImagesError where another download has failed."""
        if settings.stop.wait(seconds):
            raise RdmaImagesError(f"{settings.name}: stopped, because another download failed")

    def report(line: str) -> None:
        """Report a line under the download's name."""
        settings.progress(f"{settings.name}: {line}")

    retry_policy = http.RetryPolicy(
        TRIES - 1, http.FAILING, retry_absent=True, first_wait=PAUSE, progress=report, wait=wait
    )
    for attempt in range(1, TRIES + 1):
        try:
            _attempt(address, file, settings, retry_policy)
            return
        except (web.StatusError, requests.RequestException) as error:
            raise _download_error(address, settings, web.describe_error(error, settings.mirrors)) from None
        except _IncompleteError as error:
            if attempt == TRIES:
                raise _download_error(address, settings, str(error)) from None
            pause = http.backoff(attempt, PAUSE, retry_policy.longest_wait)
            report(f"{error}: retrying in {pause:.1f} s")
            wait(pause)


def download_verified(address: str, file: Path, settings: DownloadSettings, verify: Callable[[Path], None]) -> None:
    """Download `address` to `file`, alone in its folder, and verify it.

    A partial file of an earlier run is resumed; if the whole does not verify then, it is downloaded anew. Raises the
    errors of `download` and `verify`; after a ChecksumError nothing is kept.
    """
    resumed = file.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    download(address, file, settings)
    try:
        verify(file)
    except ChecksumError:
        shutil.rmtree(file.parent)
        if not resumed:
            raise
        download_verified(address, file, settings, verify)


def _download_error(address: str, settings: DownloadSettings, reason: str) -> RdmaImagesError:
    return RdmaImagesError(f"{settings.name}: {address}: {reason}\ntry later, or name another address in mirrors.yaml")


def _attempt(address: str, file: Path, settings: DownloadSettings, retry_policy: http.RetryPolicy) -> None:
    """Download once, resuming the partial file; after an error the file stays."""
    offset = file.stat().st_size if file.exists() else 0
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    try:
        with web.request("GET", address, settings.mirrors, DOWNLOAD_TIMEOUT_SECONDS, headers, retry_policy) as response:
            if not http.resumes(response, offset):
                offset = 0
            _write_body(response, file, offset, settings)
    except web.StatusError as error:
        # The partial file is whole, or of something else: its verification says which.
        if not (error.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and offset):
            raise


def _write_body(response: requests.Response, file: Path, offset: int, settings: DownloadSettings) -> None:
    """Write the body from byte `offset` on. Raises _IncompleteError where it ends early."""
    length = response.headers.get("Content-Length", "")
    total = offset + int(length) if length.isdigit() else None
    total_part = f" of {format_megabytes(total)}" if total else ""
    reported = time.monotonic()
    with file.open("r+b" if offset else "wb") as stream:
        stream.seek(offset)
        stream.truncate()
        for chunk in _chunks(response):
            stream.write(chunk)
            offset += len(chunk)
            if settings.stop.is_set():
                raise RdmaImagesError(f"{settings.name}: stopped, because another download failed")
            if time.monotonic() - reported > REPORT_EVERY:
                reported = time.monotonic()
                settings.progress(f"{settings.name}: {format_megabytes(offset)}{total_part}")
    if total is not None and offset < total:
        raise _IncompleteError(f"the connection ended after {offset} of {total} bytes")


def _chunks(response: requests.Response) -> Iterator[bytes]:
    """Yield the body in chunks. Raises _IncompleteError where the connection breaks."""
    try:
        yield from response.iter_content(CHUNK)
    except (requests.RequestException, HTTPError) as error:
        raise _IncompleteError(http.describe_error(error)) from None
