"""Show what goes wrong with jobs: the entries that fit, or all of them as docs/guides/troubleshooting.md."""

from collections.abc import Iterable, Iterator

from rdma_images.core.paths import COMMAND
from rdma_images.core.pipeline import Fabric
from rdma_images.facts.launchers import SHOWN
from rdma_images.facts.troubleshooting import Troubleshooting, TroubleshootingEntry
from rdma_images.jobs.check.rules import RULES
from rdma_images.jobs.results.result import Result

HEAD = """# Troubleshooting

This page is for those whose job does not start, fails or is slow. It lists what goes wrong with jobs, the command that
shows it, and what that command prints on a healthy system.
`invoke job.run` and `invoke job.result` print the entry that fits the message of a scheduler or a job.
"Reported by" names [validators](../reference/validators.md) (`invoke validate`, with `--tier device` or `--tier gpu` on
a node), rules of `invoke job.check` and `node.check`, the check of the nodes ([jobs](jobs.md)), and `job.result`, the
verdict on a job's logs. "Reported first" is the command that reports it first, and when.
This page is written from `facts/troubleshooting.yaml`.
"""


def fitting_entries(texts: Iterable[str], fabric: Fabric | None, facts: Troubleshooting) -> str:
    """Return the entries that fit the texts, for a terminal; "" where none fits."""
    return "\n".join(_short(name, entry) for name, entry in facts.fitting(texts, fabric))


def entries_of_result(result: Result, scheduler_lines: Iterable[str], facts: Troubleshooting) -> str:
    """Return the entries for a result that is not good, or a job that failed."""
    lines = list(scheduler_lines)
    run = result.leg("fabric")
    if run and result.exit_code:
        lines += [run.sentence, *(problem.sentence for problem in run.problems), *run.evidence]
    return fitting_entries(lines, result.fabric, facts)


def troubleshooting_page(facts: Troubleshooting) -> str:
    """Return docs/guides/troubleshooting.md."""
    return "\n".join((HEAD, *(line for name, entry in facts.entries.items() for line in _section(name, entry, facts))))


def _short(name: str, entry: TroubleshootingEntry) -> str:
    return (
        f"{entry.symptom} (docs/guides/troubleshooting.md, {name})\n  see with   {entry.command}\n"
        f"  healthy    {entry.healthy}\n  fix        {entry.fix}"
    ).replace("`invoke ", f"`{COMMAND} ")


def _section(name: str, entry: TroubleshootingEntry, facts: Troubleshooting) -> Iterator[str]:
    suffix = f" ({SHOWN[entry.fabric]})" if entry.fabric else ""
    yield f"## {entry.symptom}{suffix}\n\n`{name}`\n"
    if entry.example:
        yield f"| message | `{entry.example}` |\n|---|---|"
    else:
        yield "| message | none |\n|---|---|"
    yield f"| see with | `{_cell(entry.command)}` |"
    yield f"| healthy | {_cell(entry.healthy)} |"
    yield f"| reported by | {', '.join(f'`{check}`' for check in entry.checks) or 'the scheduler'} |"
    yield f"| reported first | {_earliest_report(entry)} |"
    yield f"| fix | {_cell(entry.fix)} |"
    yield f"| source | {_cell(facts.cite(entry))} |\n"


def _earliest_report(entry: TroubleshootingEntry) -> str:
    """Return which command reports an entry first, and when."""
    if not entry.checks:
        return "by `invoke job.run`, in the scheduler's words"
    if {rule.id for rule in RULES} & set(entry.checks):
        return "by `invoke job.check`, before the job is submitted"
    if "node.check" in entry.checks:
        return "by the job itself, in the seconds before its command"
    if "job.result" in entry.checks and entry.says:
        return "by `invoke job.run` and `invoke job.watch`, within 5 seconds of the message"
    if "job.result" in entry.checks:
        return "by `invoke job.result`, after the job"
    return "by `invoke validate`, before a job"


def _cell(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", "\\|")
