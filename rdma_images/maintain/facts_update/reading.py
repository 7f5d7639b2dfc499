"""Published versions beside their rows of facts, as YAML and lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
    """The values of one version. They are as written in YAML: words, and tuples of words."""

    file: str  # "torch.yaml"
    version: str
    current: Mapping[str, Value]
    recorded: Mapping[str, Value] | None  # None for a version that the facts do not have

    @property
    def changes(self) -> dict[str, tuple[Value, Value]]:
        """Return the differing values, name -> (recorded, current); none of a new version."""
        if self.recorded is None:
            return {}
        names = [*self.current, *(name for name in self.recorded if name not in self.current)]
        pairs = {name: (self.recorded.get(name, ""), self.current.get(name, "")) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


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
    return "".join([*lines[:position], yaml_row(reading.version, dict(reading.current)), *lines[position:]])


def update_table(update: Update, written: Sequence[Reading]) -> RenderableType:
    """Return what is new or different, a line each; then what the makers' pages say."""
    from rich.console import Group
    from rich.text import Text

    lines: list[Text] = []
    for reading in update.new:
        text = "added to" if reading in written else "not in"
        values = ", ".join(f"{name} {_cell_text(value)}" for name, value in reading.current.items())
        lines.append(Text.assemble(("new      ", "green"), f"{reading.version} {text} facts/{reading.file}: {values}"))
    for reading in update.changed:
        for name, (recorded, current) in reading.changes.items():
            text = (
                f"{reading.version}: {name} is {_cell_text(current)}, facts/{reading.file} has {_cell_text(recorded)}"
            )
            lines.append(Text.assemble(("differs  ", "bold red"), text))
    for news in update.news:
        text = news.error or (f"names {', '.join(news.newer)}" if news.newer else "names nothing newer")
        lines.append(Text.assemble(("page     ", "cyan"), f"{news.component}: {news.address} {text}"))
    unchanged_count = len(update.readings) - len(update.new) - len(update.changed)
    lines.append(Text(f"{unchanged_count} of {len(update.readings)} releases read are as the facts say"))
    return Group(*lines)


def _cell_text(value: Value) -> str:
    return (value or "nothing") if isinstance(value, str) else " ".join(value)
