"""What the check of jobs found, for people and for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from rdma_images.jobs.check.foreign_job import Checked, JobFinding, Piece, UncheckedFile

SHOWN = 5  # places of one finding, and files passed over, that people are shown


def text(checked: Checked) -> Text:
    """Return what was read, a line each; then each finding with its places, source and fix; then a summary."""
    shown = Text(no_wrap=True, overflow="ignore")
    for piece in checked.pieces:
        shown.append(f"read  {piece}\n")
    for label, rows in (("passed over", checked.templates), ("not read", checked.unreadable)):
        for row in rows if label == "not read" else rows[:SHOWN]:
            shown.append(f"{label}  {_in_a_line(row)}\n", "bold red" if label == "not read" else "")
    if len(checked.templates) > SHOWN:
        shown.append(f"passed over  {len(checked.templates) - SHOWN} more templates and definitions\n")
    for finding in checked.findings:
        _add(shown, finding)
    shown.append(_summary(checked))
    return shown


def _add(shown: Text, finding: JobFinding) -> None:
    shown.append(f"{finding.severity:<7}", "bold red" if finding.severity == "error" else "yellow")
    shown.append(f"  {finding.where[0]}: {finding.what}\n")
    others = finding.where[1:]
    for other in others[: SHOWN - 1]:
        shown.append(f"         {other}\n")
    if len(others) >= SHOWN:
        shown.append(f"         and {len(others) - SHOWN + 1} more places\n")
    shown.append(f"  {finding.rule}\n  fix: {finding.fix}\n  source: {finding.source}\n")


def _in_a_line(row: UncheckedFile) -> str:
    why = row.why.replace("\n", ": ")
    return why if why.startswith(row.file) else f"{row.file}: {why}"


def _summary(checked: Checked) -> str:
    """Return how much is wrong, or what was looked at without a finding."""
    errors = sum(finding.severity == "error" for finding in checked.findings)
    warnings = len(checked.findings) - errors
    unread = f"; {_many(len(checked.unreadable), 'file')} not read" if checked.unreadable else ""
    read = f"in {_many(len(checked.pieces), 'part')} of jobs in {_many(checked.files, 'file')}"
    if checked.findings:
        return f"{_many(errors, 'error')}, {_many(warnings, 'warning')} {read}{unread}"
    return f"nothing is wrong {read}{unread}\n{_pieces_line(checked.pieces)}" if checked.pieces else unread.lstrip("; ")


def _pieces_line(pieces: Sequence[Piece]) -> str:
    variables = sum(len(piece.environment) for piece in pieces)
    images = sum(bool(piece.image) for piece in pieces)
    counted = [piece for piece in pieces if piece.instance and piece.gpus]
    types = ", ".join(dict.fromkeys(piece.instance.text for piece in counted if piece.instance))
    line = f"looked at {_many(variables, 'variable')} and {_many(images, 'image')}"
    if counted:
        return f"{line}, and at the counts of {types}"
    named = any(piece.instance for piece in pieces)
    return f"{line}; not at counts: no {'part asks for GPUs' if named else 'instance type with GPUs is named'}"


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def as_json(checked: Checked) -> str:
    """Return {"read": […], "passed-over": […], "unreadable": […], "findings": […]}."""
    data = {
        "files": checked.files,
        "read": [str(piece) for piece in checked.pieces],
        "passed-over": [asdict(row) for row in checked.templates],
        "unreadable": [asdict(row) for row in checked.unreadable],
        "findings": [asdict(finding) for finding in checked.findings],
    }
    return json.dumps(data, indent=2)
