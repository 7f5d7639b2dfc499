"""Reports that are still valid: the same image, the same suite, the same options."""

import hashlib
import json
from pathlib import Path

from rdma_images.core import atomic
from rdma_images.core.image import Image
from rdma_images.core.paths import state_folder
from rdma_images.inspection.report import Report
from rdma_images.report.report_files import REPORT


def cache_key(ref: str, digest: str, suite: str, image: Image | None, tiers: tuple[str, ...]) -> str:
    """Return what a result depends on: image, name, suite, tiers, and the plan."""
    versions = sorted((name, c.version) for name, c in image.components.items()) if image else None
    checks = image.checks if image else ()
    depends = [digest, ref, suite, image.id if image else None, versions, sorted(tiers), *([checks] if checks else [])]
    return hashlib.sha256(json.dumps(depends).encode()).hexdigest()


def find(name: str, digest: str) -> tuple[Report, Path] | None:
    """Return the report of the image `digest` kept under `name`, and its JUnit XML.

    None where no valid report is cached.
    """
    folder = _folder(name)
    report = REPORT.load_if_valid(folder / REPORT.name)
    junit = folder / "report.xml"
    return (report, junit) if report and junit.exists() and report.digest == digest else None


def save(name: str, report: Report, junit: Path) -> None:
    """Keep a report and its JUnit XML under `name`."""
    folder = _folder(name)
    atomic.write(folder / "report.xml", junit.read_text(encoding="utf-8"))
    REPORT.save(folder / REPORT.name, report)


def _folder(name: str) -> Path:
    return state_folder() / "reports" / name
