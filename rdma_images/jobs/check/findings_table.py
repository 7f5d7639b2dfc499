"""Findings of the check of jobs, for people and for programs."""

import json
from dataclasses import asdict

from rich.text import Text

from rdma_images.core.sizes import format_count
from rdma_images.jobs.check.node_group import CheckedJobs, JobFinding, UncheckedFile

MAX_SHOWN = 5  # places of one finding that people are shown


def findings_text(checked: CheckedJobs) -> Text:
    """Return what was read, the findings with their places, sources and fixes, and a summary."""
    output = Text(no_wrap=True, overflow="ignore")
    for group in checked.groups:
        output.append(f"read  {group}\n")
    for row in checked.templates:
        output.append(f"passed over  {_in_a_line(row)}\n")
    for row in checked.unreadable:
        output.append(f"not read  {_in_a_line(row)}\n", "bold red")
    for finding in checked.findings:
        _append_finding(output, finding)
    if checked.groups:
        output.append(_summary(checked))
    output.rstrip()
    return output


def _in_a_line(row: UncheckedFile) -> str:
    reason = row.why.replace("\n", ": ")
    return reason if reason.startswith(row.file) else f"{row.file}: {reason}"


def _append_finding(output: Text, finding: JobFinding) -> None:
    label = "allowed" if finding.is_allowed else f"{finding.severity:<7}"
    style = "" if finding.is_allowed else "bold red" if finding.severity == "error" else "yellow"
    output.append(label, style).append(f"  {finding.where[0]}: {finding.message}\n")
    for other in finding.where[1:MAX_SHOWN]:
        output.append(f"         {other}\n")
    if len(finding.where) > MAX_SHOWN:
        output.append(f"         and {len(finding.where) - MAX_SHOWN} more places\n")
    fix = "" if finding.is_allowed else f"  fix: {finding.fix}\n"
    output.append(f"  {finding.rule}\n{fix}  source: {finding.source}\n")


def _summary(checked: CheckedJobs) -> str:
    """Return the counts of errors and warnings; without a finding, what was checked."""
    counted = [finding for finding in checked.findings if not finding.is_allowed]
    errors = sum(finding.severity == "error" for finding in counted)
    allowed = len(checked.findings) - len(counted)
    allowed_text = f", {allowed} allowed by a comment" if allowed else ""
    unread = f"; {format_count(len(checked.unreadable), 'file')} not read" if checked.unreadable else ""
    extent = f"in {format_count(len(checked.groups), 'part')} of jobs in {format_count(checked.files, 'file')}{unread}"
    if checked.findings:
        warnings = format_count(len(counted) - errors, "warning")
        return f"{format_count(errors, 'error')}, {warnings}{allowed_text} {extent}"
    types = ", ".join(dict.fromkeys(group.instance.text for group in checked.groups if group.instance and group.gpus))
    missing = "the instance type of its GPUs" if any(group.gpus for group in checked.groups) else "GPUs"
    counts = f"at the counts of {types}" if types else f"not at counts: no part names {missing}"
    return f"nothing is wrong {extent}\nlooked at variables and images, and {counts}"


def as_json(checked: CheckedJobs) -> str:
    """Return {"read": […], "passed-over": […], "unreadable": […], "findings": […]}."""
    document = {
        "files": checked.files,
        "read": [str(group) for group in checked.groups],
        "passed-over": [asdict(row) for row in checked.templates],
        "unreadable": [asdict(row) for row in checked.unreadable],
        "findings": [asdict(finding) for finding in checked.findings],
    }
    return json.dumps(document, indent=2)
