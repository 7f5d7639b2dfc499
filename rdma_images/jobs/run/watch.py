"""Watch what a job prints: what its preflight finds, and the verdict on its network, from the first line on."""

import math
import re
import time
from pathlib import Path

from rdma_images.core.durations import format_minutes
from rdma_images.core.plain import plain
from rdma_images.core.progress import Progress
from rdma_images.facts.nccl_logs import load_log_patterns
from rdma_images.jobs.results.log_files import GrowingFolder
from rdma_images.nccl_logs.reader import LogReader
from rdma_images.nccl_logs.verdict import judge_summary

GRACE_SECONDS = 10.0  # seconds in which the other ranks may say more, after a line that stops a job
# What rdma-preflight prints, before the command and at its end.
FINDING = re.compile(r"rdma-preflight (?P<node>\S+) (?P<severity>error|warning|note|result) (?P<sentence>.+)")
MAX_FINDINGS = 200  # that are reported
BETWEEN_NODES = ("neighbour:", "nodes:", "all-reduce:", "network:")  # subjects of errors that name no node


class LogWatch:
    """Watch the logs below a folder, and say each finding and each change of the verdict with its time."""

    def __init__(self, folder: Path, progress: Progress, prints_log: bool = False) -> None:
        """Take the folder; with `prints_log`, the lines are printed, too, with the names of several logs."""
        self._lines = GrowingFolder(folder)
        self._progress = progress
        self._prints_log = prints_log
        self._patterns = load_log_patterns()
        self._reader = LogReader(self._patterns)
        self._verdict = judge_summary(self._reader.summary(), self._patterns)
        self._start_time = time.monotonic()
        self._stop_time = math.inf
        self._findings: set[str] = set()
        self.bad_nodes: dict[str, list[str]] = {}  # and the errors of each, as "SUBJECT: SENTENCE"

    @property
    def sentence(self) -> str:
        """Return why the job cannot run, by its preflight, or the verdict so far."""
        return self.check_failure or self._verdict.sentence

    @property
    def check_failure(self) -> str:
        """Return the nodes whose preflight failed, with an error of each; "" for none."""
        return "; ".join(f"node {node}: {errors[0]}" for node, errors in self.bad_nodes.items())

    def nodes_to_exclude(self, nodes: int) -> str:
        """Return the names of the nodes whose preflight failed, of so many, with commas between.

        A node with errors between nodes alone is not among them: another may be at fault. Nor is any where all nodes of
        several failed: what the job sets is wrong then.
        """
        names = [
            node
            for node, errors in self.bad_nodes.items()
            if not all(error.startswith(BETWEEN_NODES) for error in errors)
        ]
        return "" if 1 < nodes <= len(names) else ",".join(names)

    def look(self) -> bool:
        """Judge what was written since the last look. Return whether the job cannot go on.

        It cannot once a fatal line came, and others had their time to say more.
        """
        logs = self._lines.new_lines()
        for path, lines in logs.items() if self._prints_log else ():
            for line in lines.splitlines():
                print(f"[{path.stem}] {plain(line)}" if len(logs) > 1 else plain(line), flush=True)
        text = "".join(logs.values())
        for match in FINDING.finditer(text):
            self._report_finding(plain(match["node"]), match["severity"], plain(match["sentence"]))
        if text:
            self._judge(text)
        if self._verdict.has_ended or self.bad_nodes:
            self._stop_time = min(self._stop_time, time.monotonic())
        return time.monotonic() > self._stop_time + GRACE_SECONDS

    def _judge(self, lines: str) -> None:
        """Judge the lines, and say a verdict that differs from the earlier one in more than counts of channels."""
        earlier = self._verdict
        self._reader.read(lines)
        self._verdict = verdict = judge_summary(self._reader.summary(), self._patterns)
        outcomes = {(row.network, row.good, len(row.causes)) for row in (earlier, verdict)}
        if verdict.network != "unknown" and len(outcomes) > 1:
            self._report(f"{verdict.network}: {verdict.sentence}")

    def _report_finding(self, node: str, severity: str, sentence: str) -> None:
        """Say what the preflight found, each finding once."""
        finding = f"{node}: {sentence}"
        if finding in self._findings or len(self._findings) == MAX_FINDINGS:
            return
        self._findings.add(finding)
        self._report(f"{severity}: {finding}")
        if severity == "error":
            self.bad_nodes.setdefault(node, []).append(sentence)

    def _report(self, sentence: str) -> None:
        self._progress(f"{format_minutes(time.monotonic() - self._start_time)} {plain(sentence)}")
