"""report.json: written whole or not at all, read back as the Report it was."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from rdma_images import atomic, paths
from rdma_images.errors import RdmaImagesError
from rdma_images.model import Check, Report
from rdma_images.report import page

SCHEMA = 1


def write(report: Report, folder: Path) -> Path:
    """Write report.json and report.html into `folder` and return the path of the first."""
    path = folder / "report.json"
    write_json(report, path)
    atomic.write(folder / "report.html", page.page((report,)))
    return path


def write_json(report: Report, path: Path) -> None:
    """Write the report alone, as docs/report-schema.json has it."""
    atomic.write(path, as_json(report) + "\n")


def as_json(report: Report) -> str:
    """The report as text, as docs/report-schema.json has it."""
    return json.dumps({**asdict(report), "passed": report.passed}, indent=1)


def write_page() -> Path:
    """Write build/report.html, one page of every report under build/images/, and return where it is.

    Raises RdmaImagesError where there is no report.
    """
    reports = [load(path) for path in sorted(paths.IMAGES.glob("*/report.json"))]
    if not reports:
        raise RdmaImagesError(f"{paths.IMAGES} has no report: run `invoke validate` first")
    path = paths.BUILD / "report.html"
    atomic.write(path, page.page(reports))
    return path


def publish_kept(kept: Report, junit: Path, folder: Path) -> Report:
    """Write a report that was kept, and its JUnit XML, into `folder`; returns it marked as reused."""
    report = replace(kept, reused=True)
    if not _is_there(report, folder):
        atomic.write(folder / "report.xml", junit.read_text(encoding="utf-8"))
        write(report, folder)
    return report


def _is_there(report: Report, folder: Path) -> bool:
    """Whether `folder` has this very report, with its page: nothing to do must take no time, and a page takes 0.1 s."""
    path = folder / "report.json"
    others = (folder / "report.html", folder / "report.xml")
    return (
        path.exists()
        and all(file.exists() for file in others)
        and path.read_text(encoding="utf-8") == as_json(report) + "\n"
    )


def load(path: Path) -> Report:
    """The report at `path`. Raises RdmaImagesError where there is none that this version understands."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RdmaImagesError(f"{path}: no report yet: run `invoke validate` for this image") from None
    except (OSError, ValueError) as error:
        raise RdmaImagesError(f"{path}: not a report: {error}; run `invoke validate` again") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise RdmaImagesError(f"{path}: not a report of schema {SCHEMA}: run `invoke validate` again")
    data.pop("passed", None)
    try:
        checks = tuple(Check(**check) for check in data.pop("checks"))
        return Report(**{**data, "checks": checks, "rehearsal": tuple(data["rehearsal"])})
    except (TypeError, KeyError) as error:
        raise RdmaImagesError(f"{path}: a damaged report ({error}): run `invoke validate` again") from None
