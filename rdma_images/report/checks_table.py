"""Show a report on a terminal."""

import re

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdma_images.core.check import Check
from rdma_images.core.paths import COMMAND
from rdma_images.core.plain import plain
from rdma_images.inspection.network_chain import Chain
from rdma_images.inspection.report import FAILED_OUTCOMES, Report, shown_outcome

FIRST_LINE = 160  # characters of a finding's first line, unless its first part alone is longer
SHORT_LINE = 120  # characters of what a check found that passed
CITED = re.compile(r" \[([^\[\]]*\((?:vendor|artefact|third-party)[^()\[\]]*\))\]")  # facts/facts_file.py, Origin
STYLES = {
    **{"passed": "green", "failed": "bold red", "warned": "yellow", "noted": "cyan"},
    **{"not measured": "yellow", "skipped": "dim"},
}
ANSWERS = {"passed": "bold green", "failed": "bold red", "warned": "bold yellow"}
NAMED_OUTCOMES = ("failed", "warned", "not measured")  # whose checks the last line names
OUTCOME_WORDS = {"passed": "ok", "failed": "FAILED", "warned": "warning", "noted": "note"}


def report_table(report: Report, verbose: bool = False) -> RenderableType:
    """Return the answer, what failed with its fix, the worst first, and the counts.

    `verbose` adds a line for every check, and the notes.
    """
    from rdma_images.datapath.checks import coverage  # here, because a report that is kept needs no emulator

    rows = Table(box=None, pad_edge=False, show_header=False)
    for column in ("state", "id", "what"):
        rows.add_column(column, overflow="fold")
    for check in report.checks:
        outcome = shown_outcome(check)
        rows.add_row(Text(OUTCOME_WORDS.get(outcome, outcome), STYLES[outcome]), check.id, _check_text(check))
    parts: list[RenderableType] = []
    if report.chain:
        parts.append(answer_text(report.chain, verbose))
    elif answer := _answer_without_nccl(report):
        parts.append(Text(f"{answer}\n"))
    parts += [rows, Text()] if verbose else []
    parts += [_failure(check, verbose) for check in findings(report) if verbose or check.severity != "note"]
    parts += [_unmeasured(report)] if report.unmeasured else []
    if sentence := coverage(report.checks):
        parts.append(Text(sentence))
    if report.base_faults:
        parts.append(Text(f"Faults of the image that the fabric was added to: {', '.join(report.base_faults)}."))
    if report.stand_ins:
        stand_ins = ", ".join(report.stand_ins)
        parts.append(Text(f"A rehearsal: stand-ins took the place of {stand_ins}. Not an image to ship.", "yellow"))
    parts.append(Text(summary_line(report, verbose), verdict_style(report), no_wrap=True, overflow="ignore"))
    return Group(*parts)


def answer_text(chain: Chain, verbose: bool = False) -> Text:
    """Return in one line which network NCCL would use, and in another how that was found out.

    `verbose` adds a line for every link.
    """
    text = Text(f"{chain.answer}\n", ANSWERS[chain.state])
    for link in chain.links if verbose else ():
        text.append(f"  {link.name:15}", "dim").append(f"{link.text}\n")
    return text.append(f"  {chain.evidence}\n", "dim")


def _answer_without_nccl(report: Report) -> str:
    """Return that no NCCL was found; "" where the files were not read."""
    measured = report.inspection.measured if report.inspection else None
    if not measured or not measured.tree:
        return ""
    torch, versions = measured.torch, dict(measured.packages.installed) if measured.packages else {}
    reason = "neither libnccl.so.2 nor torch is installed"
    if torch and not torch.cuda:
        reason = f"torch {torch.version} is built without CUDA"
    elif "torch" in versions:
        reason = f"torch {versions['torch']} is installed, and no libnccl.so.2"
    return plain(f"There is no NCCL that could use a network: {reason}")


def findings(report: Report) -> list[Check]:
    """Return the failed checks: errors, warnings, notes; of each, faults of a version last.

    Every image with that version has those, and the others are this image's own.
    """
    failed = [check for check in report.checks if check.outcome == "failed"]
    return sorted(failed, key=lambda check: (list(FAILED_OUTCOMES).index(check.severity), check.id.endswith(".broken")))


def counts_text(report: Report) -> str:
    """Return the counts of outcomes, with the names of what failed or warns."""
    ids = {word: f" ({', '.join(report.check_ids(word))})" if word in NAMED_OUTCOMES else "" for word in report.counts}
    return ", ".join(f"{count} {word}{ids[word]}" for word, count in report.counts.items())


def verdict_style(report: Report) -> str:
    """Return the style of a report's last line: red, yellow or green."""
    return "bold red" if report.failed else "bold yellow" if report.warnings or report.unmeasured else "bold green"


def summary_line(report: Report, verbose: bool = False) -> str:
    """Return the counts, what failed, warns or was not measured, and whether it is reused.

    Unless `verbose`, also how to see the others.
    """
    counts = counts_text(report)
    source = f"; kept from {report.started}, as neither the image nor the checks have changed" if report.reused else ""
    expected = report.inspection.expected if report.inspection else None
    fabric_note = (
        f"; not checked for EFA or eRDMA: {plain(expected.reason)}" if expected and not expected.fabric else ""
    )
    dropped = f"; no longer checked: {', '.join(report.no_longer_checked)}" if report.no_longer_checked else ""
    hidden = {"noted", "skipped"} & set(report.counts)
    hint = "" if verbose or not hidden else "; --verbose shows every check"
    return f"{report.ref}: {counts}, in {report.seconds:.1f} s{source}{fabric_note}{dropped}{hint}"


def _check_text(check: Check) -> Text:
    text = Text(check.title)
    if check.outcome == "passed" and check.actual:
        text.append(f": {_shorten(check.actual)}", "dim")
    elif check.outcome in ("skipped", "not measured"):
        text.append(f": {_shorten(check.reason)}", "dim")
    return text


def _unmeasured(report: Report) -> Text:
    """Return why some checks have no result, and what to do."""
    reasons = dict.fromkeys(check.reason for check in report.checks if check.outcome == "not measured")
    text = Text()
    text.append(f"not measured: {'; '.join(reasons)}\n", STYLES["not measured"])
    return text.append("  fix       ", "dim").append(f"`{COMMAND} validate --again` when the machine is less busy\n")


def _failure(check: Check, verbose: bool) -> Text:
    """Return a finding: what was found in one line, then what was expected and what to do."""
    text = Text()
    sentence = check.actual if verbose else headline(check)
    text.append(f"{check.id}: {sentence}\n", STYLES[shown_outcome(check)])
    rows = [("must hold", check.title), ("expected", check.expected), ("fix", check.fix)]
    rows += [] if verbose else [("source", source) for source in dict.fromkeys(CITED.findall(check.actual))][:1]
    for word, value in rows:
        text.append(f"  {word:10}", "dim").append(f"{value}\n")
    return text


def headline(check: Check) -> str:
    """Return whole sentences of what a failed check found, in one line, uncited."""
    return fitting_parts(CITED.sub("", check.actual), FIRST_LINE - len(check.id) - 2)


def fitting_parts(text: str, max_length: int) -> str:
    """Return the parts between semicolons that fit, at least the first, and how many more there are."""
    parts = text.split("; ")
    lines = [_with_rest(parts, count) for count in range(1, len(parts) + 1)]
    return next((line for line in reversed(lines) if len(line) <= max_length), lines[0])


def _with_rest(parts: list[str], count: int) -> str:
    """Return the first `count` parts, and how many more there are."""
    remaining = len(parts) - count
    return "; ".join(parts[:count]) + (f"; and {remaining} more" if remaining else "")


def _shorten(text: str) -> str:
    """Return a text in one line, without its end where that is long."""
    line = " ".join(text.split())
    return line if len(line) <= SHORT_LINE else f"{line[: SHORT_LINE - 1]}…"
