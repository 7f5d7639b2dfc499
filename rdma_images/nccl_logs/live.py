"""Judge NCCL's logs while a job writes them: from the first line on, and again whenever the verdict changes."""

import codecs
import os
import select
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from rdma_images.facts.nccl_logs import NcclLogs
from rdma_images.nccl_logs import log_blocks
from rdma_images.nccl_logs.parser import LogParser
from rdma_images.nccl_logs.verdict import Verdict, judge_summary

READ_BYTES = 1 << 20  # bytes read at once
MAX_READ_BYTES = 32 << 20  # bytes of a file read in one look
POLL_SECONDS = 0.3  # seconds between two looks at a file that grows


class LiveVerdict:
    """The verdict on the lines that were fed so far."""

    def __init__(self, wordings: NcclLogs) -> None:
        self._wordings = wordings
        self._parser = LogParser(wordings)
        self.verdict = judge_summary(self._parser.summary(), wordings)
        self.has_ended = False  # a line after which no job goes on was fed

    def feed(self, text: str) -> bool:
        """Parse whole lines. Return whether they change what is known of the network."""
        earlier_verdict = self.verdict
        if block := log_blocks.lines(text):
            self._parser.feed(block)
            summary = self._parser.summary()
            self.verdict = judge_summary(summary, self._wordings)
            failure = summary.failure
            is_hopeless = failure and failure.has_ended and failure.network is False and not failure.is_effect
            self.has_ended = bool(summary.fatal_faults or (self.verdict.network == "refused" and is_hopeless))
        return self.verdict.network != "unknown" and _outcome(earlier_verdict) != _outcome(self.verdict)


def _outcome(verdict: Verdict) -> tuple[str, bool, int]:
    """Return what of a verdict is worth telling again, without counts of channels."""
    return verdict.network, verdict.good, len(verdict.causes)


class GrowingFile:
    """A log that is still written, read from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._buffer = log_blocks.LineBuffer()

    def new_lines(self) -> str:
        """Return the lines that were completed since the last look; none where the file is gone."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read(MAX_READ_BYTES)
        except OSError:
            return ""
        self._offset += len(content)
        return self._buffer.complete_lines(self._decoder.decode(content))


class GrowingFolder:
    """The logs below a folder, also those that appear later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs: dict[Path, GrowingFile] = {}

    def new_lines(self) -> str:
        """Return the lines that were completed in any file since the last look."""
        for path in sorted(self._folder.rglob("*")):
            if path not in self._logs and path.is_file():
                self._logs[path] = GrowingFile(path)
        return "".join(log.new_lines() for log in self._logs.values())


def stream(descriptor: int, deadline: float) -> Iterator[bytes]:
    """Yield what can be read, as soon as it is there, and b"" where nothing came for a moment.

    A regular file is followed beyond its end. Ends with a pipe's end, or at `deadline` (time.monotonic).
    """
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    while time.monotonic() < deadline:
        ready, _, _ = select.select([descriptor], [], [], POLL_SECONDS)
        chunk = os.read(descriptor, READ_BYTES) if ready else b""
        if ready and not chunk:
            if not is_file:
                return
            time.sleep(POLL_SECONDS)
        yield chunk
