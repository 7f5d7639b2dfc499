"""The task that lists licences: licenses."""

from json import dumps

from invoke.context import Context

from rdma_images.cli.base import show, verb
from rdma_images.cli.options import CHOICE, JSON, MANY
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.selection import project, target_options


@verb(
    "licenses --target efa-pytorch",
    "licenses --target efa-pytorch --texts",
    help=CHOICE | {"texts": "Also the files in the image that have the licences' texts."} | JSON,
    iterable=MANY,
)
def licenses(
    _: Context,
    target: list[str] | None = None,
    all: bool = False,
    set: list[str] | None = None,
    texts: bool = False,
    json: bool = False,
) -> None:
    """List the licences of validated images by package.

    As SPDX expressions, from the metadata of wheels and the copyright files of Debian's packages.
    """
    from rdma_images.bill import license_table, parts
    from rdma_images.report.files import REPORT

    documents = []
    for image in target_options.chosen_images(project.load(), target, all, set):
        report = REPORT.read(image.id)
        if report is None:
            raise RefusedError(
                f"{image.id} was never validated\nrun `{COMMAND} validate --target {image.target}` first"
            )
        if report.facts is None or report.facts.measured.contents is None:
            raise RefusedError(f"the report of {report.ref} has no licences\nrun `{COMMAND} validate` for it again")
        listed = parts.parts(report, image)
        documents.append(license_table.as_json(report.ref, listed))
        if not json:
            show(license_table.license_table(report.ref, listed, texts))
    if json:
        show(dumps(documents, indent=2))
