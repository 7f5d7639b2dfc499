"""Reports that are still true: the same image, the same suite, the same question."""

import hashlib
import json
from pathlib import Path

from rdma_images import atomic
from rdma_images.errors import RdmaImagesError
from rdma_images.model import Image, Report
from rdma_images.paths import state_folder
from rdma_images.report import files


def key(ref: str, digest: str, suite: str, image: Image | None, tiers: tuple[str, ...]) -> str:
    """What a result depends on: the image's content and name, the suite, and what the image was held against."""
    versions = sorted((name, c.version) for name, c in image.components.items()) if image else None
    depends = [digest, ref, suite, image.id if image else None, versions, sorted(tiers)]
    return hashlib.sha256(json.dumps(depends).encode()).hexdigest()


def find(name: str, digest: str) -> tuple[Report, Path] | None:
    """The report of the image `digest` kept under `name`, and its JUnit XML; None where there is none to go by."""
    folder = _folder(name)
    try:
        found = files.load(folder / "report.json")
    except RdmaImagesError:
        return None
    junit = folder / "report.xml"
    return (found, junit) if junit.exists() and found.digest == digest else None


def keep(name: str, report: Report, junit: Path) -> None:
    """Keep a report and its JUnit XML under `name`."""
    folder = _folder(name)
    atomic.write(folder / "report.xml", junit.read_text(encoding="utf-8"))
    files.write_json(report, folder / "report.json")


def _folder(name: str) -> Path:
    return state_folder() / "reports" / name
