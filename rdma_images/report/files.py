"""report.json and its page: written whole or not at all, read back as the Report they were."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rdma_images.core import atomic, files, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND
from rdma_images.core.step_files import StepFile
from rdma_images.inspection.report import Report, as_plain, from_plain


def _encoded(report: Report) -> Mapping[str, object]:
    """The report as docs/report-schema.json has it."""
    return {**as_plain(report), "passed": report.passed}


REPORT = StepFile("report.json", "validate", from_plain, _encoded)


def as_json(report: Report) -> str:
    """The report as docs/report-schema.json has it."""
    return REPORT.text(report).rstrip()


def write(report: Report, folder: Path) -> Path:
    """Write report.json and report.html into `folder` and return the path of the first."""
    path = folder / REPORT.name
    REPORT.save(path, report)
    atomic.write(folder / "report.html", _page((report,)))
    return path


def write_page() -> Path:
    """Write build/report.html, one page of every report under build/images/, and return where it is.

    Raises RdmaImagesError where there is no report.
    """
    reports = [found for one in files.entries(paths.IMAGES) if (found := REPORT.load(one / REPORT.name))]
    if not reports:
        raise RdmaImagesError(f"{paths.IMAGES} has no report\nrun `{COMMAND} validate` first")
    path = paths.BUILD / "report.html"
    atomic.write(path, _page(reports))
    return path


def _page(reports: Sequence[Report]) -> str:
    from rdma_images.report import page  # it needs Jinja, which who reads a report should not wait for

    return page.page(reports)


def publish_kept(kept: Report, junit: Path, folder: Path) -> Report:
    """Write a report that was kept, and its JUnit XML, into `folder`; returns it marked as reused."""
    report = replace(kept, reused=True)
    if not _is_there(report, folder):
        atomic.write(folder / "report.xml", junit.read_text(encoding="utf-8"))
        write(report, folder)
    return report


def _is_there(report: Report, folder: Path) -> bool:
    """Whether `folder` has this very report, with its page: nothing to do must take no time, and a page takes 0.1 s."""
    others = (folder / "report.html", folder / "report.xml")
    return all(file.exists() for file in others) and REPORT.holds(folder / REPORT.name, report)
