"""report.json: written whole or not at all, read back as the Report it was."""

import json
import os
from dataclasses import asdict
from pathlib import Path

from rdma_images.errors import RdmaImagesError
from rdma_images.model import Check, Report

SCHEMA = 1


def write(report: Report, folder: Path) -> Path:
    """Write report.json into `folder` and return its path."""
    path = folder / "report.json"
    replace(path, json.dumps({**asdict(report), "passed": report.passed}, indent=1) + "\n")
    return path


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


def replace(path: Path, text: str) -> None:
    """Write `text` to `path` so that no reader ever meets half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
