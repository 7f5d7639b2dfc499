"""Judge NCCL's lines while a job writes them."""

from __future__ import annotations

from rdma_images.nccl_logs.reader import LogReader
from rdma_images.nccl_logs.verdict import Verdict, judge_summary
from rdma_images.nccl_logs.wordings import Wordings

MAX_LINE_LENGTH = 1 << 16  # characters of a line; a longer one is read in pieces


class LineBuffer:
    """Cut text that arrives in pieces at the ends of its lines."""

    def __init__(self) -> None:
        self._pending = ""

    def complete_lines(self, piece: str) -> str:
        """Return the lines that end in `piece`, and a line that is longer than MAX_LINE_LENGTH."""
        text = self._pending + piece
        line_end = max(text.rfind("\n"), text.rfind("\r")) + 1
        if not line_end and len(text) > MAX_LINE_LENGTH:
            line_end = len(text)
        self._pending = text[line_end:]
        return text[:line_end]

    def pending_line(self) -> str:
        """Return the line that has not ended."""
        text, self._pending = self._pending, ""
        return text


class LiveVerdict:
    """The verdict on the lines that were fed so far."""

    def __init__(self, wordings: Wordings) -> None:
        self._wordings = wordings
        self._reader = LogReader(wordings)
        self._buffer = LineBuffer()
        self.verdict = judge_summary(self._reader.summary(), wordings)

    def feed(self, text: str) -> bool:
        """Read text as it comes. Return whether it changes what is known of the network."""
        return self._read(self._buffer.complete_lines(text))

    def end(self) -> bool:
        """Read the last line, which nothing ended. Return whether it changes what is known of the network."""
        return self._read(self._buffer.pending_line())

    @property
    def has_ended(self) -> bool:
        """Return whether a line was fed after which no job goes on."""
        return self.verdict.has_ended

    def _read(self, lines: str) -> bool:
        if not lines:
            return False
        earlier = self.verdict
        self._reader.read(lines)
        self.verdict = judge_summary(self._reader.summary(), self._wordings)
        return self.verdict.network != "unknown" and _outcome(earlier) != _outcome(self.verdict)


def _outcome(verdict: Verdict) -> tuple[str, bool, int]:
    """Return what of a verdict is worth telling again, without counts of channels."""
    return verdict.network, verdict.good, len(verdict.causes)
