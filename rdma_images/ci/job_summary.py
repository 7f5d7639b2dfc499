"""The Markdown table of a CI run: what was built, validated and published."""

from collections.abc import Iterable

from rdma_images.core import files, paths
from rdma_images.core.image import Build
from rdma_images.core.sizes import format_bytes
from rdma_images.core.step_files import BUILD
from rdma_images.inspection.report import Report
from rdma_images.publish import publication
from rdma_images.report.checks_table import counts_text
from rdma_images.report.report_files import REPORT

TABLE_HEAD = "| image | build | checks | published |\n|---|---|---|---|"


def summary() -> str:
    """Return a row for each image that left a build or a report under build/images/."""
    steps = (BUILD.name, REPORT.name)
    rows = [
        _row(folder.name)
        for folder in files.list_folder(paths.IMAGES)
        if any(files.exists(folder / name) for name in steps)
    ]
    return "\n".join([TABLE_HEAD, *rows]) if rows else "No image was built or validated."


def _row(image_id: str) -> str:
    build, report = BUILD.read(image_id), REPORT.read(image_id)
    cells = (image_id, _describe_build(build), _validated(report), "<br>".join(_published_cells(image_id)) or "no")
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _describe_build(build: Build | None) -> str:
    if build is None:
        return "not here"
    rehearsal = " (rehearsal)" if build.rehearsal else ""
    return f"{build.seconds:.0f} s{rehearsal}<br>`{build.digest[:19]}`"


def _validated(report: Report | None) -> str:
    if report is None:
        return "no report"
    verdict = "passed, with warnings" if report.warnings else "passed"
    if not report.passed:
        verdict = "**failed**" if report.failed else "**not measured**"
    return f"{verdict}: {counts_text(report) or 'nothing ran'}"


def _published_cells(image_id: str) -> Iterable[str]:
    published = publication.PUBLICATION.read_if_valid(image_id)
    for name, copy in sorted(published.copies.items()) if published else ():
        size = format_bytes(copy.traffic.pushed)
        yield f"{name}: `{copy.ref}` ({', '.join(copy.tags)}; {size} sent)"
