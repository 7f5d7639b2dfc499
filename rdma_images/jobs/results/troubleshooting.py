"""What goes wrong with jobs: the entries that fit, for a terminal, and all of them as docs/troubleshooting.md."""

from collections.abc import Iterable, Iterator

from rdma_images.core.paths import COMMAND
from rdma_images.core.pipeline import Fabric
from rdma_images.facts.launchers import SHOWN
from rdma_images.facts.troubleshooting import Entry, Troubleshooting
from rdma_images.jobs.results.result import Result

HEAD = """# Troubleshooting

This page is for those whose job does not start, fails or is slow. It lists what goes wrong with jobs, the command that
shows it, and what that command prints on a healthy system.
`invoke job.run` and `invoke job.result` print the entry that fits the message of a scheduler or a job.
"Reported by" names validators of [docs/validators.md](validators.md) (`invoke validate`, with `--tier device` or
`--tier gpu` on a node), rules of `invoke job.check` ([docs/jobs.md](jobs.md)), and `job.result`, the verdict on a job's
logs. This page is written from `facts/troubleshooting.yaml`.
"""


def fitting(texts: Iterable[str], fabric: Fabric | None, known: Troubleshooting) -> str:
    """The entries that fit the texts, for a terminal; "" where none fits."""
    return "\n".join(_short(name, one) for name, one in known.fitting(texts, fabric))


def of_result(result: Result, ended: Iterable[str], known: Troubleshooting) -> str:
    """The entries for a result that is not good, or a job that failed; `ended` is what its scheduler said."""
    said = list(ended)
    leg = result.leg("fabric")
    if leg and result.exit_code:
        said += [leg.sentence, *(one.sentence for one in leg.problems), *leg.evidence]
    return fitting(said, result.fabric, known)


def page(known: Troubleshooting) -> str:
    """docs/troubleshooting.md."""
    return "\n".join((HEAD, *(line for name, one in known.entries.items() for line in _section(name, one, known))))


def _short(name: str, one: Entry) -> str:
    return (
        f"{one.symptom} (docs/troubleshooting.md, {name})\n  see with   {one.command}\n"
        f"  healthy    {one.healthy}\n  fix        {one.fix}"
    ).replace("`invoke ", f"`{COMMAND} ")


def _section(name: str, one: Entry, known: Troubleshooting) -> Iterator[str]:
    over = f" ({SHOWN[one.fabric]})" if one.fabric else ""
    yield f"## {one.symptom}{over}\n\n`{name}`\n"
    if one.example:
        yield f"| it says | `{one.example}` |\n|---|---|"
    else:
        yield "| it says | nothing |\n|---|---|"
    yield f"| see with | `{_cell(one.command)}` |"
    yield f"| healthy | {_cell(one.healthy)} |"
    yield f"| reported by | {', '.join(f'`{check}`' for check in one.checks)} |"
    yield f"| fix | {_cell(one.fix)} |"
    yield f"| source | {_cell(known.cite(one))} |\n"


def _cell(text: str) -> str:
    """Text in a cell of a table."""
    return text.replace("|", "\\|")
