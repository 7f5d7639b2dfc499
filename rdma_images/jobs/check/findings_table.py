"""What the check of jobs found, for people and for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from rdma_images.jobs.check.foreign_job import Finding


def text(read: Sequence[str], found: Sequence[Finding]) -> Text:
    """What was read, a line each; then each finding with its place, reason, source and fix."""
    shown = Text(no_wrap=True, overflow="ignore")
    for line in read:
        shown.append(f"read  {line}\n")
    for one in found:
        shown.append(f"{one.severity:<7}", "bold red" if one.severity == "error" else "yellow")
        shown.append(f"  {one.where}: {one.what}\n")
        shown.append(f"  {one.rule}\n  fix: {one.fix}\n  source: {one.source}\n")
    errors = sum(one.severity == "error" for one in found)
    shown.append(f"{errors} errors, {len(found) - errors} warnings" if found else "nothing is wrong with it")
    return shown


def as_json(read: Sequence[str], found: Sequence[Finding]) -> str:
    """{"read": […], "findings": […]}."""
    return json.dumps({"read": list(read), "findings": [asdict(one) for one in found]}, indent=2)
