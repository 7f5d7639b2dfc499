"""The logs of a leg, read once: what NCCL says for the verdict, what each process says, and the rows of nccl-tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rdma_images.facts.nccl_logs import NcclLogs
from rdma_images.jobs.results import nccl_tests_json
from rdma_images.jobs.results.nccl_tests import Table
from rdma_images.jobs.results.processes import Channel, Processes
from rdma_images.validate import job_log, nccl_log

CHANNEL = "NCCL INFO Channel "
MARKS = ("#", "busbw", "Test ")  # of lines that nccl-tests write outside a table


@dataclass(frozen=True)
class Logs:
    """What was read."""

    nccl: nccl_log.Read
    processes: Processes
    tables: tuple[Table, ...]  # one a log


def read(logs: Sequence[Path], wordings: NcclLogs, base: Path | None = None) -> Logs:
    """What the logs say. Places are relative to `base`. Raises RdmaImagesError for what cannot be read."""
    reader = nccl_log.Reader(wordings)
    rows = (*wordings.causes.values(), *wordings.notes.values(), *wordings.slow.values())
    processes = Processes(rows)
    tables = []
    for path in logs:
        name = str(path.relative_to(base) if base and path.is_relative_to(base) else path)
        if nccl_tests_json.is_one(path):
            tables.append(nccl_tests_json.read(path, name))
            continue
        log = _Log(name, reader, processes)
        for number, text in job_log.pieces(path):
            log.piece(number, text)
        tables.append(log.table)
    return Logs(reader.result(), processes, tuple(tables))


@dataclass
class _Channel:
    """Lines about one channel."""

    key: Channel
    where: str  # of the first
    times: int = 1


class _Log:
    """One log of text."""

    def __init__(self, name: str, reader: nccl_log.Reader, processes: Processes) -> None:
        self.name, self.reader, self.processes, self.table = name, reader, processes, Table()

    def piece(self, number: int, text: str) -> None:
        """Read a piece of it, which begins in the line `number`."""
        usual: dict[tuple[str, str], _Channel] = {}  # what stands before "NCCL", and from "via" on
        others: list[tuple[int, str]] = []
        for line in text.split("\n"):
            at = line.find("NCCL ")
            via = line.find(" via NET/", at) if at >= 0 else -1
            # The whole expression for the first line of a kind alone: there are thousands of each.
            if via > 0 and (known := usual.get((line[:at], line[via:]))) and line.startswith(CHANNEL, at):
                known.times += 1
            elif via > 0 and (found := nccl_log.USUAL.fullmatch(line, at)):
                key = (found["network"], found["device"], found["gdr"] is not None)
                usual[line[:at], line[via:]] = _Channel(key, f"{self.name}:{number}")
            else:
                others.append((number, line))
                if at >= 0 or self.table.open or any(mark in line for mark in MARKS):
                    self._line(line, f"{self.name}:{number}")
            if via > 0 and self.table.open:
                self.table.beside(line)
            number += 1
        for (before, _), one in usual.items():
            self.reader.channels(one.key[0], one.key[2], one.times)
            if process := self.processes.of(before):
                process.channel(one.key, one.where, one.times)
        self.processes.meanings(self.name, others)
        self.reader.block(job_log.lines("\n".join(line for _, line in others)))

    def _line(self, line: str, where: str) -> None:
        """Read a line that is not a usual one."""
        for part in nccl_log.parts(line):
            before, *messages = nccl_log.MESSAGE.split(part[: job_log.LONGEST])
            if messages:
                self.table.beside(before)
            else:
                self.table.line(part[-nccl_log.LONGEST :], where)
            for message in messages:
                process = self.processes.of(before[-nccl_log.LONGEST :])
                self.processes.message(process, message[: nccl_log.LONGEST], where)
                before = message
