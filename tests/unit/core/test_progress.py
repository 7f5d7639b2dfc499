"""Progress: a whole line at once, and on standard error alone."""

import sys

import pytest

from rdma_images.core.progress import progress


class Stream:
    """A stream that keeps what each call writes."""

    def __init__(self) -> None:
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)

    def flush(self) -> None:
        return None


def test_a_line_and_its_end_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads say what they do at once: between a line and its end, another's line came."""
    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    progress("resolving torch")
    assert stream.writes == ["resolving torch\n"]


def test_without_standard_error_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output has the answer alone."""
    monkeypatch.setattr(sys, "stderr", None)
    progress("resolving torch")
    assert capsys.readouterr().out == ""
