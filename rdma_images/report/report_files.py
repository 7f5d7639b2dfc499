"""Write report.json and its page, whole or not at all, and read reports back."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rdma_images.core import atomic, files, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Image
from rdma_images.core.paths import COMMAND
from rdma_images.core.step_files import StepFile
from rdma_images.inspection.report import Report, decode_report, encode_report
from rdma_images.report import junit

# In the form of docs/reference/report-schema.json.
REPORT = StepFile(
    "report.json", "validate", decode_report, lambda report: {**encode_report(report), "passed": report.passed}
)


def report_folder(
    ref: str, image: Image | None = None, host: str | None = None, fabric: str = "", instance: str = ""
) -> Path:
    """Return the folder of an image's report: build/images/, by its id or reference.

    A report of a host goes to <name>@<host>/, one for another fabric or an instance type to <name>@<fabric>/. Neither
    replaces the image's own report, which `publish` reads.
    """
    name = "@".join(filter(None, (image.id if image else ref, host, fabric, instance)))
    return paths.image_folder("".join(c if c.isalnum() or c in "._-@" else "-" for c in name))


def report_json(report: Report) -> str:
    """Return the report as JSON in the form of docs/reference/report-schema.json."""
    return REPORT.text(report).rstrip()


def write(report: Report, folder: Path) -> Path:
    """Write report.json, report.xml and report.html into `folder` and return the path of the first."""
    path = folder / REPORT.name
    REPORT.write_file(path, report)
    atomic.write(folder / "report.xml", junit.junit_xml(report.checks))
    atomic.write(folder / "report.html", _page((report,)))
    return path


def write_page() -> Path:
    """Write build/report.html, a page of all reports, and return its path.

    Raises RdmaImagesError where there is no report.
    """
    reports = list(filter(None, (REPORT.read_file(path / REPORT.name) for path in files.list_folder(paths.IMAGES))))
    if not reports:
        raise RdmaImagesError(f"{paths.IMAGES} has no report\nrun `{COMMAND} validate` first")
    path = paths.BUILD / "report.html"
    atomic.write(path, _page(reports))
    return path


def _page(reports: Sequence[Report]) -> str:
    from rdma_images.report import report_page  # it needs Jinja, which who reads a report should not wait for

    return report_page.report_html(reports)


def write_cached(cached: Report, folder: Path) -> Report:
    """Write a cached report into `folder`; return it marked as reused."""
    report = replace(cached, reused=True)
    if not _exists(report, folder):
        write(report, folder)
    return report


def _exists(report: Report, folder: Path) -> bool:
    """Return whether `folder` has this very report.

    An unchanged build must take no time.
    """
    other_files = (folder / "report.html", folder / "report.xml")
    return all(file.exists() for file in other_files) and REPORT.read_file_if_valid(folder / REPORT.name) == report
