"""A report for a terminal."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdma_images.core.pipeline import Check
from rdma_images.core.plain import plain
from rdma_images.inspection.report import Report

STYLES = {"passed": "green", "failed": "bold red", "warned": "yellow", "skipped": "dim"}
MARKS = {"passed": "ok", "failed": "FAILED", "warned": "warning", "skipped": "skipped"}


def state(check: Check) -> str:
    """The outcome as it is shown: a failed check that is only a warning is "warned"."""
    return "warned" if check.outcome == "failed" and check.severity == "warning" else check.outcome


def table(report: Report) -> RenderableType:
    """Every check in a line, what failed with its fix, and the counts."""
    from rdma_images.datapath.limits import verdict  # here, because a report that is kept needs no emulator

    rows = Table(box=None, pad_edge=False, show_header=False)
    for column in ("state", "id", "what"):
        rows.add_column(column, overflow="fold")
    for check in report.checks:
        shown = state(check)
        rows.add_row(Text(MARKS[shown], STYLES[shown]), check.id, _said(check))
    parts: list[RenderableType] = [rows, Text()]
    parts += [_failure(check) for check in report.checks if check.outcome == "failed"]
    if said := verdict(report.checks):
        parts.append(Text(said))
    if report.rehearsal:
        stood_in = ", ".join(report.rehearsal)
        parts.append(Text(f"A rehearsal: stand-ins took the place of {stood_in}. Not an image to ship.", "yellow"))
    parts.append(Text(sum_of(report), "bold green" if report.passed else "bold red"))
    return Group(*parts)


def sum_of(report: Report) -> str:
    """One sentence: how many checks passed, failed and were skipped, and whether that was known already."""
    shown = [state(check) for check in report.checks]
    words = ("passed", "failed", "warned", "skipped")
    counts = ", ".join(f"{shown.count(word)} {word}" for word in words if shown.count(word))
    kept = f"; kept from {report.started}, as neither the image nor the suite has changed" if report.reused else ""
    expected = report.facts.expected if report.facts else None
    neither = f"; not checked for EFA or eRDMA: {plain(expected.because)}" if expected and not expected.fabric else ""
    return f"{report.ref}: {counts}, in {report.seconds:.1f} s{kept}{neither}"


def _said(check: Check) -> Text:
    text = Text(check.title)
    if check.outcome == "passed" and check.found:
        text.append(f": {_short(check.found)}", "dim")
    elif check.outcome == "skipped":
        text.append(f": {_short(check.reason)}", "dim")
    return text


def _failure(check: Check) -> Text:
    text = Text()
    text.append(f"{check.id}: {check.title}\n", STYLES[state(check)])
    for word, value in (("expected", check.expected), ("found", check.found), ("fix", check.fix)):
        text.append(f"  {word:9}", "dim").append(f"{value}\n")
    return text


def _short(text: str, most: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
