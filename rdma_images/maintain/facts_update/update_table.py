"""An update to look at: what is new or different, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rdma_images.maintain.facts_update import Update
    from rdma_images.maintain.facts_update.reading import Reading, Value


def as_json(found: Update) -> str:
    """What was read, for programs."""
    readings = [asdict(reading) | {"changes": reading.changes} for reading in found.readings]
    return json.dumps({"readings": readings, "news": [asdict(news) for news in found.news]}, indent=2)


def table(found: Update, written: Sequence[Reading] = ()) -> RenderableType:
    """What is new or different, a line each; then what the makers' pages say."""
    from rich.console import Group
    from rich.text import Text

    lines: list[Text] = []
    for reading in found.new:
        said = "added to" if reading in written else "not in"
        values = ", ".join(f"{name} {_words(value)}" for name, value in reading.found.items())
        lines.append(Text.assemble(("new      ", "green"), f"{reading.version} {said} facts/{reading.file}: {values}"))
    for reading in found.changed:
        for name, (known, now) in reading.changes.items():
            said = f"{reading.version}: {name} is {_words(now)}, facts/{reading.file} has {_words(known)}"
            lines.append(Text.assemble(("differs  ", "bold red"), said))
    for news in found.news:
        said = news.trouble or (f"names {', '.join(news.newer)}" if news.newer else "names nothing newer")
        lines.append(Text.assemble(("page     ", "cyan"), f"{news.component}: {news.address} {said}"))
    same = len(found.readings) - len(found.new) - len(found.changed)
    lines.append(Text(f"{same} of {len(found.readings)} releases read are as the facts say"))
    return Group(*lines)


def _words(value: Value) -> str:
    return (value or "nothing") if isinstance(value, str) else " ".join(value)
