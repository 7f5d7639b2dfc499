"""The task that lists licences: licenses."""

from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from rdma_images.cli.output import show
from rdma_images.cli.verb import CHOICE, JSON, MANY, verb
from rdma_images.core import atomic
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import progress
from rdma_images.core.sizes import format_megabytes
from rdma_images.selection import project, target_options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rdma_images.bill.parts import BillPart
    from rdma_images.inspection.report import Report


@verb(
    "licenses --target efa-pytorch",
    "licenses --target efa-pytorch --texts",
    "licenses --target efa-pytorch --archive licenses.tar.gz",
    help=CHOICE
    | {
        "texts": "Also the files in the image that have the licences' texts.",
        "archive": "A file that gets these texts, of one image: FILE.tar.gz.",
    }
    | JSON,
    iterable=MANY,
)
def licenses(
    _: Context,
    target: list[str] | None = None,
    all: bool = False,
    set: list[str] | None = None,
    texts: bool = False,
    archive: str = "",
    json: bool = False,
) -> None:
    """List the licences of validated images by package.

    As SPDX expressions, from the metadata of wheels and the copyright files of Debian's packages.
    """
    from rdma_images.bill import parts
    from rdma_images.report.report_files import REPORT

    documents = []
    images = target_options.chosen_images(project.load(), target, all, set)
    if archive and len(images) > 1:
        raise RefusedError(f"--archive takes one image, and {len(images)} are chosen\nname one with --target and --set")
    for image in images:
        report = REPORT.read(image.id)
        if report is None:
            raise RefusedError(
                f"{image.id} was never validated\nrun `{COMMAND} validate --target {image.target}` first"
            )
        if report.inspection is None or report.inspection.measured.contents is None:
            raise RefusedError(f"the report of {report.ref} has no licences\nrun `{COMMAND} validate` for it again")
        listed = parts.list_parts(report, image)
        documents.append(_license_list(report.ref, listed))
        if archive:
            _write_archive(Path(archive), report, listed)
        if not json:
            show(_license_table(report.ref, listed, texts))
    if json:
        show(dumps(documents, indent=2))


def _write_archive(path: Path, report: "Report", listed: "list[BillPart]") -> None:
    """Write the licence texts of an image to `path`. Raises RdmaImagesError for none."""
    from rdma_images import engine
    from rdma_images.bill import license_texts

    content = license_texts.pack(engine.ensure(progress), report.digest, listed)
    if not content:
        raise RefusedError(f"{report.ref} has no file with a licence's text")
    with atomic.replacing(path) as temporary:
        temporary.write_bytes(content)
    progress(f"{path}: {format_megabytes(len(content))}")


def _license_table(ref: str, parts: "Sequence[BillPart]", texts: bool) -> "RenderableType":
    """Return a row for each package; with `texts` also where the texts are in the image."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("package", "version", "licence", *(["text"] if texts else [])):
        table.add_column(column, overflow="fold")
    for part in parts:
        row = [part.name, part.version, part.license or "none named"]
        table.add_row(*map(Text, [*row, "\n".join(part.texts)] if texts else row))
    unnamed = [part.name for part in parts if not part.license]
    note = f"{ref}: {len(parts)} packages; {len(unnamed)} name no licence"
    return Group(table, Text(f"{note}: {', '.join(unnamed)}" if unnamed else note, "bold"))


def _license_list(image: str, parts: "Sequence[BillPart]") -> dict[str, object]:
    """Return the packages and their licences in the form of `licenses --json`."""
    packages = [
        {"name": part.name, "version": part.version, "license": part.license, "texts": list(part.texts)}
        for part in parts
    ]
    return {"image": image, "packages": packages}
