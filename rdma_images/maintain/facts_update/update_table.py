"""Show an update: what is new or different, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rdma_images.maintain.facts_update import Update
    from rdma_images.maintain.facts_update.reading import Reading, Value


def as_json(update: Update) -> str:
    """Return what was read as JSON."""
    readings = [asdict(reading) | {"changes": reading.changes} for reading in update.readings]
    return json.dumps({"readings": readings, "news": [asdict(news) for news in update.news]}, indent=2)


def update_table(update: Update, written: Sequence[Reading] = ()) -> RenderableType:
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
