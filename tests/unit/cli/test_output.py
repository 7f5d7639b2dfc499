"""What tasks show: on a terminal and in a pipe, with every character of a value."""

import os
import pty
from collections.abc import Callable

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from rdma_images.cli import output


def in_a_pipe(capsys: pytest.CaptureFixture[str], answer: object) -> str:
    output.show(answer)
    return capsys.readouterr().out


def on_a_terminal(_: pytest.CaptureFixture[str], answer: object) -> str:
    reading, writing = pty.openpty()
    with os.fdopen(writing, "w") as terminal:
        output.show(answer, file=terminal)
        text = os.read(reading, 4096).decode()
    os.close(reading)
    return text


@pytest.mark.parametrize("print_table", [in_a_pipe, on_a_terminal])
def test_brackets_in_a_table_are_no_markup(
    print_table: Callable[[pytest.CaptureFixture[str], object], str], capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table("package[head]", box=None)
    table.add_row("no table [project] and no [/red]")
    text = print_table(capsys, table)
    assert "package[head]" in text
    assert "no table [project] and no [/red]" in text


LINE = "rdma-images/efa-pytorch@sha256:" + "0123456789" * 30


@pytest.mark.parametrize(
    ("print_text", "text"),
    [(in_a_pipe, Text(LINE)), (on_a_terminal, Text(LINE, no_wrap=True, overflow="ignore"))],
)
def test_a_line_is_whole_in_a_pipe_and_where_it_is_not_to_be_folded(
    print_text: Callable[[pytest.CaptureFixture[str], object], str], text: Text, capsys: pytest.CaptureFixture[str]
) -> None:
    assert LINE in print_text(capsys, Group(Text("image"), text))
