"""Published versions that the facts lack, as rows of YAML and lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from rdma_images.core import atomic, versions

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rdma_images.maintain.facts_update import Update


Value = str | tuple[str, ...]
SOURCE = "wheel"  # what the rows of both files name
WIDTH = 110
_VERSION = re.compile(r"  (\d\S*):")
_TABLE = "releases:"


@dataclass(frozen=True)
class Reading:
    """The values of a version that the facts lack. They are as written in YAML: words, and tuples of words."""

    file: str  # "torch.yaml"
    version: str
    values: Mapping[str, Value]


def add_rows(folder: Path, readings: Iterable[Reading], today: date) -> None:
    """Add new readings to their files, newest first, and date the source `today`."""
    for reading in readings:
        path = folder / reading.file
        text = path.read_text(encoding="utf-8")
        dated = re.sub(rf"(?ms)^(  {SOURCE}:$.*?^    read: )\S+", rf"\g<1>{today}", _with_row(text, reading), count=1)
        atomic.write(path, dated)


def yaml_row(version: str, values: dict[str, Value]) -> str:
    """Return a row as YAML, in lines of about WIDTH characters."""
    lines = ["    {"]
    for name, value in [*values.items(), ("source", SOURCE)]:
        text = value if isinstance(value, str) else f"[{', '.join(value)}]"
        word = f"{name}: {text}, "
        if len(lines[-1]) + len(word) > WIDTH:
            lines.append(" " * 5)
        lines[-1] += word
    inside = "\n".join(line.rstrip() for line in lines).removesuffix(",")
    return f"  {version}:\n{inside}}}\n"


def _with_row(text: str, reading: Reading) -> str:
    """Return `text` with the row before the first older version of the table."""
    lines = text.splitlines(keepends=True)
    position = lines.index(f"{_TABLE}\n") + 1
    for number, line in enumerate(lines[position:], start=position):
        match = _VERSION.match(line)
        if match and versions.at_least(reading.version, match[1]):
            break
        position = number + 1
    return "".join([*lines[:position], yaml_row(reading.version, dict(reading.values)), *lines[position:]])


def update_table(update: Update, written: bool) -> RenderableType:
    """Return the new releases, a line each, and whether their rows are `written`; then what the makers' pages say."""
    from rich.console import Group
    from rich.text import Text

    lines: list[Text] = []
    text = "added to" if written else "not in"
    for reading in update.readings:
        values = ", ".join(f"{name} {_cell_text(value)}" for name, value in reading.values.items())
        lines.append(Text.assemble(("new      ", "green"), f"{reading.version} {text} facts/{reading.file}: {values}"))
    for news in update.news:
        text = news.error or (f"names {', '.join(news.newer)}" if news.newer else "names nothing newer")
        lines.append(Text.assemble(("page     ", "cyan"), f"{news.component}: {news.address} {text}"))
    return Group(*lines)


def _cell_text(value: Value) -> str:
    return (value or "nothing") if isinstance(value, str) else " ".join(value)
