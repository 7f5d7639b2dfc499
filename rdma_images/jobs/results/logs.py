"""Read the logs of a run once: NCCL's lines for the verdict, and the rows of nccl-tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rdma_images.core.plain import plain
from rdma_images.facts.nccl_logs import load_wordings
from rdma_images.jobs.results import log_files
from rdma_images.jobs.results.nccl_tests import SizesParser
from rdma_images.nccl_logs.reader import LogReader, LogSummary
from rdma_images.nccl_logs.verdict import Verdict, judge_summary


@dataclass(frozen=True)
class RunLogs:
    """The content of a run's logs."""

    nccl: LogSummary
    verdict: Verdict
    tables: tuple[SizesParser, ...]  # one a log


def read_run_logs(logs: Sequence[Path], base: Path | None = None) -> RunLogs:
    """Return the content of logs, whose lines are named relative to `base`.

    Raises FileError where one cannot be read.
    """
    wordings = load_wordings()
    reader, tables = LogReader(wordings), []
    for path in logs:
        name = plain(str(path.relative_to(base) if base and path.is_relative_to(base) else path))
        table = SizesParser()
        for number, text in log_files.pieces(path):
            reader.read(text, name, number)
            table.read(text, name, number)
        tables.append(table)
    summary = reader.summary()
    return RunLogs(summary, judge_summary(summary, wordings), tuple(tables))


def judge_log(path: Path) -> Verdict:
    """Return the verdict on the log at `path`, a file or a pipe. Raises FileError where it cannot be read."""
    return read_run_logs([path]).verdict
