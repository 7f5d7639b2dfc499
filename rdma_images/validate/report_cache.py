"""Reports that are still valid: the same image, the same suite, the same options."""

import hashlib
import json
from pathlib import Path

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


def find(name: str, digest: str) -> Report | None:
    """Return the report of the image `digest` kept under `name`; None where no valid one is."""
    report = REPORT.load_if_valid(_file(name))
    return report if report and report.digest == digest else None


def save(name: str, report: Report) -> None:
    """Keep a report under `name`."""
    REPORT.save(_file(name), report)


def _file(name: str) -> Path:
    return state_folder() / "reports" / name / REPORT.name
