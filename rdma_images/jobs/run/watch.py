"""Watch what any job prints, and judge its network from the first line on."""

import math
import re
import time
from pathlib import Path

from rdma_images.core.plain import plain
from rdma_images.core.progress import Progress
from rdma_images.facts.nccl_logs import load_wordings
from rdma_images.jobs.results import log_files
from rdma_images.nccl_logs.live import LiveVerdict
from rdma_images.nccl_logs.verdict import Verdict

GRACE_SECONDS = 10.0  # seconds in which the other ranks may say more, after a line that stops a job
# What rdma-preflight prints, before the command and at its end.
FINDING = re.compile(r"rdma-preflight (?P<node>\S+) (?P<severity>error|warning|note|result) (?P<sentence>.+)")
MAX_FINDINGS = 200  # that are reported


class JobWatch:
    """Judge the lines of a job as they come, and say each change of the verdict with its time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._live = LiveVerdict(load_wordings())
        self._start_time = time.monotonic()
        self._stop_time = math.inf
        self._findings: set[str] = set()
        self.bad_nodes: dict[str, list[str]] = {}  # and the errors of each, as "SUBJECT: SENTENCE"

    @property
    def verdict(self) -> Verdict:
        """Return the verdict so far."""
        return self._live.verdict

    @property
    def is_over(self) -> bool:
        """Return whether a fatal line came, and others had their time to say more."""
        return time.monotonic() > self._stop_time + GRACE_SECONDS

    def feed(self, text: str) -> None:
        """Judge text as it comes."""
        if "rdma-preflight " in text:
            self._report_findings(text)
        self._report_change(self._live.feed(text))
        if self._live.has_ended or self.bad_nodes:
            self._stop_time = min(self._stop_time, time.monotonic())

    def end(self) -> None:
        """Judge the last line, which nothing ended."""
        self._report_change(self._live.end())

    def _report_change(self, is_changed: bool) -> None:
        if is_changed:
            self._report(f"{self.verdict.network}: {self.verdict.sentence}")

    def _report_findings(self, text: str) -> None:
        """Say what the preflight found, each finding once."""
        for match in FINDING.finditer(text):
            finding = f"{match['node']}: {match['sentence']}"
            if finding in self._findings or len(self._findings) == MAX_FINDINGS:
                continue
            self._findings.add(finding)
            self._report(f"{match['severity']}: {finding}")
            if match["severity"] == "error":
                self.bad_nodes.setdefault(plain(match["node"]), []).append(plain(match["sentence"]))

    def _report(self, sentence: str) -> None:
        seconds = int(time.monotonic() - self._start_time)
        self._progress(f"{seconds // 60}:{seconds % 60:02d} {plain(sentence)}")


def watch_log(path: Path, limit: float, progress: Progress) -> Verdict:
    """Return the verdict on a log that grows, once a line stops the job or time is up.

    A pipe's end ends it, too. Raises FileError where it cannot be read.
    """
    watch = JobWatch(progress)
    for text in log_files.follow(path, time.monotonic() + limit):
        watch.feed(text)
        if watch.is_over:
            break
    watch.end()
    return watch.verdict
