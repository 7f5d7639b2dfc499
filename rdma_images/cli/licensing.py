"""The licences of images, as `describe --licenses` lists them."""

from collections.abc import Iterable, Sequence
from json import dumps
from typing import TYPE_CHECKING

from rdma_images.cli.output import show
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rdma_images.core.image import Image
    from rdma_images.publish.evidence.bill_parts import BillPart


def show_licenses(images: "Iterable[Image]", json: bool) -> None:
    """Print the licences of validated images by package.

    As SPDX expressions, from the metadata of wheels and the copyright files of Debian's packages; as JSON also with
    where the texts are in the image.

    Raises:
        RefusedError: An image was not validated.
    """
    from rdma_images.publish.evidence.bill_parts import list_parts
    from rdma_images.report.report_files import REPORT

    documents = []
    for image in images:
        report = REPORT.read(image.id)
        if report is None:
            raise RefusedError(
                f"{image.id} was never validated\nrun `{COMMAND} validate --target {image.target}` first"
            )
        if report.inspection is None or report.inspection.measured.contents is None:
            raise RefusedError(f"the report of {report.ref} has no licences\nrun `{COMMAND} validate` for it again")
        parts = list_parts(report, image)
        documents.append(_license_list(report.ref, parts))
        if not json:
            show(_license_table(report.ref, parts))
    if json:
        show(dumps(documents, indent=2))


def _license_table(ref: str, parts: "Sequence[BillPart]") -> "RenderableType":
    """Return a row for each package, and in one line those that name no licence."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("package", "version", "licence"):
        table.add_column(column, overflow="fold")
    for part in parts:
        table.add_row(*map(Text, (part.name, part.version, part.license or "none named")))
    unnamed = [part.name for part in parts if not part.license]
    note = f"{ref}: {len(parts)} packages; {len(unnamed)} name no licence"
    return Group(table, Text(f"{note}: {', '.join(unnamed)}" if unnamed else note, "bold"))


def _license_list(image: str, parts: "Sequence[BillPart]") -> dict[str, object]:
    """Return the packages and their licences in the form of `describe --licenses --json`."""
    packages = [
        {"name": part.name, "version": part.version, "license": part.license, "texts": list(part.texts)}
        for part in parts
    ]
    return {"image": image, "packages": packages}
