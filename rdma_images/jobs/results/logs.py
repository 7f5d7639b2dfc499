"""Read the logs of a run once: NCCL's lines for the verdict, each process's values, and the rows of nccl-tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rdma_images.facts import facts_file
from rdma_images.facts.failures import Failures
from rdma_images.facts.nccl_logs import NcclLogs
from rdma_images.jobs.results import nccl_tests_json
from rdma_images.jobs.results.nccl_tests import SizesParser
from rdma_images.jobs.results.processes import PROCESS_MARKS, Processes
from rdma_images.nccl_logs import log_blocks, parser
from rdma_images.nccl_logs.line_filter import USUAL, Channels, LineClassifier, MatchingLine, plain_text, printable_parts

TEST_MARKS = ("#", "busbw", "Test ")  # of lines that nccl-tests write outside a table


@dataclass(frozen=True)
class RunLogs:
    """The content of a run's logs."""

    nccl: parser.LogSummary
    processes: Processes
    tables: tuple[SizesParser, ...]  # one a log


def read_run_logs(logs: Sequence[Path], wordings: NcclLogs, base: Path | None = None) -> RunLogs:
    """Return the content of logs.

    Lines are named relative to `base`.

    Raises:
        RdmaImagesError: A log cannot be read.
    """
    reader, processes = parser.LogParser(wordings), Processes()
    rows = (*wordings.causes.values(), *wordings.notes.values(), *wordings.slow.values())
    failures = facts_file.read(Failures).failures.values()
    classifier = LineClassifier(rows, (*TEST_MARKS, *parser.LINE_MARKS, *PROCESS_MARKS), failures)
    tables = []
    for path in logs:
        name = str(path.relative_to(base) if base and path.is_relative_to(base) else path)
        if nccl_tests_json.is_json_report(path):
            tables.append(nccl_tests_json.read_report(path, name))
            continue
        log = _Log(name, classifier, reader, processes)
        for number, text in log_blocks.pieces(path):
            if not reader.is_cut(text):
                log.read_piece(number, text)
        tables.append(log.table)
    return RunLogs(reader.summary(), processes, tuple(tables))


class _Log:
    """One text log."""

    def __init__(self, name: str, classifier: LineClassifier, reader: parser.LogParser, processes: Processes) -> None:
        self.name, self.classifier, self.reader, self.processes, self.table = (
            name,
            classifier,
            reader,
            processes,
            SizesParser(),
        )

    def read_piece(self, number: int, text: str) -> None:
        """Read a piece of the log, which begins in the line `number`."""
        text = plain_text(text).replace("\r\n", "\n")
        channels = Channels()
        matching_lines: list[MatchingLine] = []
        lines = text.split("\n")
        shapes = self.classifier.classify_lines(text)
        self.reader.failure_reader.feed(text, lines, shapes, self.name, number)
        for line, shape in zip(lines, shapes, strict=True):
            if shape is USUAL and channels.count(number, line):
                if self.table.has_open_table:
                    self.table.read_other_line(line)
            elif shape.matters:
                matching_lines.append((line, shape))
                where = f"{self.name}:{number}"
                # Message by message: an expression takes the square of a line's length where many messages are in it.
                for message in dict.fromkeys(text[: parser.MAX_MESSAGE_LENGTH] for text in parser.MESSAGE.split(line)):
                    self.processes.record_meanings(shape.wordings, message, where)
                self._read_line(line, where)
            elif self.table.has_open_table and shape.is_nccl:
                self.table.read_other_line(line)
            elif self.table.has_open_table:
                self._read_line(line, f"{self.name}:{number}")
            number += 1
        self._count_channels(channels)
        self.reader.feed_matching(text, matching_lines, channels, any(shape.is_nccl for shape in set(shapes)))

    def _count_channels(self, channels: Channels) -> None:
        """Count the channels over a network of lines that say nothing else."""
        for (sender, _), channel in channels.network.items():
            key = (channel.match["network"], channel.match["device"], channel.match["gdr"] is not None)
            if process := self.processes.process_of_line(sender):
                process.count_channel(key, f"{self.name}:{channel.number}", channel.times)

    def _read_line(self, line: str, where: str) -> None:
        """Read a line that says more than a channel."""
        for part in printable_parts(line):
            prefix, *messages = parser.MESSAGE.split(part[: log_blocks.MAX_LINE_LENGTH])
            if messages:
                self.table.read_other_line(prefix)
            else:
                self.table.read_line(part[-parser.MAX_MESSAGE_LENGTH :], where)
            for message in messages:
                process = self.processes.process_of_line(prefix[-parser.MAX_MESSAGE_LENGTH :])
                self.processes.record_message(process, message[: parser.MAX_MESSAGE_LENGTH], where)
                prefix = message
