"""The pages of docs/ that are written from facts."""

from collections.abc import Iterator

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts.launchers import Launchers
from rdma_images.facts.troubleshooting import Troubleshooting, TroubleshootingEntry
from rdma_images.jobs.check.rules import RULES

TROUBLESHOOTING_HEAD = """# Troubleshooting

This page is for those whose job does not start, fails or is slow. It lists what goes wrong with jobs, the command that
shows it, and what that command prints on a healthy system.
`invoke job.run` and `invoke job.result` print the entry that fits the message of a scheduler or a job.
"Reported by" names [validators](../reference/validators.md) (`invoke validate`, with `--tier device` or `--tier gpu` on
a node), rules of `invoke job.check` and `node.check`, the check of the nodes ([jobs](jobs.md)), and `job.result`, the
verdict on a job's logs. "Reported first" is the command that reports it first, and when.
This page is written from `facts/troubleshooting.yaml`.
"""


def troubleshooting_page(facts: Troubleshooting) -> str:
    """Return docs/guides/troubleshooting.md."""
    return "\n".join(
        (
            TROUBLESHOOTING_HEAD,
            *(line for name, entry in facts.entries.items() for line in _section(name, entry, facts)),
        )
    )


def _section(name: str, entry: TroubleshootingEntry, facts: Troubleshooting) -> Iterator[str]:
    suffix = f" ({FABRIC_TITLES[entry.fabric]})" if entry.fabric else ""
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
    if "job.result" in entry.checks and entry.pattern:
        return "by `invoke job.run` and `invoke job.watch`, within 5 seconds of the message"
    if "job.result" in entry.checks:
        return "by `invoke job.result`, after the job"
    return "by `invoke validate`, before a job"


def _cell(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", "\\|")


def launchers_page(launchers: Launchers) -> str:
    """Return docs/reference/launchers.md: a job's fields, and how each launcher passes them."""
    names = [name for name, row in launchers.launchers.items() if row.fields]
    lines = [
        "# Fields of a job, by launcher",
        "",
        "This page is for those who write a job: the fields of `jobs.yaml`, and how each launcher does them. A field",
        "that a launcher does not have is refused by name. `invoke job.launchers --fields` shows the same; both come",
        "from `facts/launchers.yaml`.",
        "",
    ]
    for name, meaning in launchers.fields.items():
        rows = [
            (launcher, launchers.launchers[launcher].fields[name].how)
            for launcher in names
            if name in launchers.launchers[launcher].fields
        ]
        lines += [f"## `{name}`", "", f"{meaning[:1].upper()}{meaning[1:]}.", "", "| launcher | how |", "|---|---|"]
        lines += [f"| `{launcher}` | {how} |" for launcher, how in rows]
        lacking = {
            key: launchers.launchers[key].without for key in names if name not in launchers.launchers[key].fields
        }
        refusals = [f"`{key}`" + (f" ({reasons[name]})" if name in reasons else "") for key, reasons in lacking.items()]
        lines += ["", *([f"Refused by {', '.join(refusals)}.", ""] if refusals else [])]
    return "\n".join(lines).rstrip("\n") + "\n"
