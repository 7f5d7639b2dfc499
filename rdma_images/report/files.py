"""report.json: written whole or not at all, read back as the Report it was."""

import functools
import json
from dataclasses import asdict, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rdma_images import atomic, paths
from rdma_images.errors import RdmaImagesError
from rdma_images.model import Report
from rdma_images.plain import plain
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
    again = "run `invoke validate` for this image"
    try:
        found = _form().validate_json(path.read_bytes())
    except FileNotFoundError:
        raise RdmaImagesError(f"{path}: no report yet: {again}") from None
    except OSError as error:
        raise RdmaImagesError(f"{path}: cannot be read: {error.strerror}; {again}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "its start"
        raise RdmaImagesError(f"{path}: not a report: {where}: {plain(first['msg'])}; {again}") from None
    if found.schema != SCHEMA:
        raise RdmaImagesError(f"{path}: a report of schema {found.schema}, not {SCHEMA}: {again}")
    return found


@functools.cache
def _form() -> "TypeAdapter[Report]":
    return TypeAdapter(Report)
