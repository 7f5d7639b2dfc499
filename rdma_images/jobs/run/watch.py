"""Watch what any job prints, and judge its network from the first line on."""

import codecs
import contextlib
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.plain import plain
from rdma_images.core.progress import Progress
from rdma_images.jobs.run.command import terminate_session
from rdma_images.nccl_logs import live, log_blocks
from rdma_images.nccl_logs.verdict import Verdict, load_wordings

GRACE_SECONDS = 10.0  # seconds in which the other ranks may say more, after a line that stops a job
# What jobs/node/node_check.py and all_reduce_check.py print.
FINDING = re.compile(
    r"rdma-images-(?P<check>node-check|all-reduce) (?P<node>\S+) (?P<severity>error|warning|note) (?P<sentence>.+)"
)
MAX_FINDINGS = 200  # of these checks that are reported


class JobWatch:
    """Judge the lines of a job as they come, and say each change of the verdict with its time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._live = live.LiveVerdict(load_wordings())
        self._start_time = time.monotonic()
        self._stop_time = math.inf
        self._findings: set[str] = set()
        self.bad_nodes: dict[str, list[str]] = {}  # and the errors of each
        self.all_reduce_error = ""  # of the all-reduce before the command; no node is blamed for it

    @property
    def verdict(self) -> Verdict:
        """Return the verdict so far."""
        return self._live.verdict

    @property
    def is_over(self) -> bool:
        """Return whether a fatal line came, and others had their time to say more."""
        return time.monotonic() > self._stop_time + GRACE_SECONDS

    def feed(self, text: str) -> None:
        """Judge whole lines."""
        if "rdma-images-" in text:
            self._report_findings(text)
        if self._live.feed(text):
            self._report(f"{self.verdict.network}: {self.verdict.sentence}")
        if self._live.has_ended or self.bad_nodes or self.all_reduce_error:
            self._stop_time = min(self._stop_time, time.monotonic())

    def _report_findings(self, text: str) -> None:
        """Say what the checks before the command found, each finding once."""
        for match in FINDING.finditer(text):
            finding = f"{match['node']}: {match['sentence']}"
            if finding in self._findings or len(self._findings) == MAX_FINDINGS:
                continue
            self._findings.add(finding)
            self._report(f"{match['severity']}: {finding}")
            if match["severity"] != "error":
                continue
            if match["check"] == "node-check":
                self.bad_nodes.setdefault(plain(match["node"]), []).append(plain(match["sentence"]))
            else:
                self.all_reduce_error = self.all_reduce_error or plain(match["sentence"])

    def _report(self, sentence: str) -> None:
        seconds = int(time.monotonic() - self._start_time)
        self._progress(f"{seconds // 60}:{seconds % 60:02d} {plain(sentence)}")


def watch_log(path: Path, limit: float, progress: Progress) -> Verdict:
    """Return the verdict on a log that grows, once a line stops the job or time is up.

    A pipe's end ends it, too. Raises RdmaImagesError where it cannot be read.
    """
    with files.as_file_error(path), path.open("rb", buffering=0) as log:
        return _watch(live.stream(log.fileno(), time.monotonic() + limit), JobWatch(progress), lambda _: None)


def watch_command(words: Sequence[str], limit: float, progress: Progress) -> tuple[Verdict, int]:
    """Run a command, pass its output on, and return the verdict and its exit code.

    It is ended after a line that stops a job, and when `limit` seconds are over; its code is then 0.

    Raises:
        RdmaImagesError: There is no such program.
    """
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        raise RdmaImagesError(f"{words[0]}: {error.strerror}\nwrite a command of this machine after --") from None
    assert process.stdout
    try:
        with process.stdout as output:
            verdict = _watch(live.stream(output.fileno(), time.monotonic() + limit), JobWatch(progress), _pass_on)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return verdict, process.wait(1.0)
        return verdict, 0
    finally:
        terminate_session(process)


def _watch(chunks: Iterator[bytes], watch: JobWatch, pass_on: Callable[[bytes], None]) -> Verdict:
    for text in _lines(chunks, pass_on):
        watch.feed(text)
        if watch.is_over:
            break
    return watch.verdict


def _lines(chunks: Iterable[bytes], pass_on: Callable[[bytes], None]) -> Iterator[str]:
    """Yield whole lines, "" where nothing came, and at the end the line that has none."""
    decoder, buffer = codecs.getincrementaldecoder("utf-8")(errors="replace"), log_blocks.LineBuffer()
    for chunk in chunks:
        pass_on(chunk)
        yield buffer.complete_lines(decoder.decode(chunk))
    yield buffer.pending_line()


def _pass_on(chunk: bytes) -> None:
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
