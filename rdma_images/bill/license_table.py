"""Show the licences of an image's packages."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdma_images.bill.parts import BillPart

UNKNOWN = "none named"


def license_table(ref: str, parts: Sequence[BillPart], texts: bool) -> RenderableType:
    """Return a row for each package; with `texts` also where the texts are in the image."""
    table = Table(box=None, pad_edge=False)
    for column in ("package", "version", "licence", *(["text"] if texts else [])):
        table.add_column(column, overflow="fold")
    for part in parts:
        row = [part.name, part.version, part.license or UNKNOWN]
        table.add_row(*map(Text, [*row, "\n".join(part.texts)] if texts else row))
    unnamed = [part.name for part in parts if not part.license]
    note = f"{ref}: {len(parts)} packages; {len(unnamed)} name no licence"
    return Group(table, Text(f"{note}: {', '.join(unnamed)}" if unnamed else note, "bold"))


def as_json(image: str, parts: Sequence[BillPart]) -> dict[str, object]:
    """Return the packages and their licences in the form of `licenses --json`."""
    packages = [
        {"name": part.name, "version": part.version, "license": part.license, "texts": list(part.texts)}
        for part in parts
    ]
    return {"image": image, "packages": packages}
