"""Findings of the check of jobs, for people and for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from rdma_images.core.sizes import format_count
from rdma_images.jobs.check.job_part import CheckedJobs, JobFinding, JobPart, UncheckedFile

MAX_SHOWN = 5  # places of one finding, and files passed over, that people are shown


def findings_text(checked: CheckedJobs) -> Text:
    """Return what was read, the findings with their places, sources and fixes, and a summary."""
    output = Text(no_wrap=True, overflow="ignore")
    for part in checked.parts:
        output.append(f"read  {part}\n")
    for label, rows in (("passed over", checked.templates), ("not read", checked.unreadable)):
        for row in rows if label == "not read" else rows[:MAX_SHOWN]:
            output.append(f"{label}  {_in_a_line(row)}\n", "bold red" if label == "not read" else "")
    if len(checked.templates) > MAX_SHOWN:
        output.append(f"passed over  {len(checked.templates) - MAX_SHOWN} more templates and definitions\n")
    for finding in checked.findings:
        _append_finding(output, finding)
    output.append(_summary(checked))
    return output


def _append_finding(output: Text, finding: JobFinding) -> None:
    if finding.acknowledged:
        output.append("allowed")
    else:
        output.append(f"{finding.severity:<7}", "bold red" if finding.severity == "error" else "yellow")
    output.append(f"  {finding.where[0]}: {finding.message}\n")
    other_locations = finding.where[1:]
    for other in other_locations[: MAX_SHOWN - 1]:
        output.append(f"         {other}\n")
    if len(other_locations) >= MAX_SHOWN:
        output.append(f"         and {len(other_locations) - MAX_SHOWN + 1} more places\n")
    output.append(f"  {finding.rule}\n")
    if not finding.acknowledged:
        output.append(f"  fix: {finding.fix}\n")
    if finding.source:
        output.append(f"  source: {finding.source}\n")


def _in_a_line(row: UncheckedFile) -> str:
    reason = row.why.replace("\n", ": ")
    return reason if reason.startswith(row.file) else f"{row.file}: {reason}"


def _summary(checked: CheckedJobs) -> str:
    """Return how much is wrong, or what was looked at without a finding."""
    counted = [finding for finding in checked.findings if not finding.acknowledged]
    errors = sum(finding.severity == "error" for finding in counted)
    warnings = len(counted) - errors
    allowed = len(checked.findings) - len(counted)
    allowed_text = f", {allowed} allowed by a comment" if allowed else ""
    unread = f"; {format_count(len(checked.unreadable), 'file')} not read" if checked.unreadable else ""
    extent = f"in {format_count(len(checked.parts), 'part')} of jobs in {format_count(checked.files, 'file')}"
    if checked.findings:
        return f"{format_count(errors, 'error')}, {format_count(warnings, 'warning')}{allowed_text} {extent}{unread}"
    return f"nothing is wrong {extent}{unread}\n{_parts_line(checked.parts)}" if checked.parts else unread.lstrip("; ")


def _parts_line(parts: Sequence[JobPart]) -> str:
    variables = sum(len(part.environment) for part in parts)
    images = sum(bool(part.image) for part in parts)
    counted = [part for part in parts if part.instance and part.gpus]
    types = ", ".join(dict.fromkeys(part.instance.text for part in counted if part.instance))
    line = f"looked at {format_count(variables, 'variable')} and {format_count(images, 'image')}"
    if counted:
        return f"{line}, and at the counts of {types}"
    has_instance = any(part.instance for part in parts)
    return f"{line}; not at counts: no {'part asks for GPUs' if has_instance else 'instance type with GPUs is named'}"


def as_json(checked: CheckedJobs) -> str:
    """Return {"read": […], "passed-over": […], "unreadable": […], "findings": […]}."""
    document = {
        "files": checked.files,
        "read": [str(part) for part in checked.parts],
        "passed-over": [asdict(row) for row in checked.templates],
        "unreadable": [asdict(row) for row in checked.unreadable],
        "findings": [asdict(finding) for finding in checked.findings],
    }
    return json.dumps(document, indent=2)
