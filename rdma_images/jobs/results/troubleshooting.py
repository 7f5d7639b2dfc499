"""Show what goes wrong with jobs: the entries of facts/troubleshooting.yaml that fit."""

from collections.abc import Iterable

from rdma_images.core.image import Fabric
from rdma_images.core.paths import COMMAND
from rdma_images.facts.troubleshooting import Troubleshooting, TroubleshootingEntry
from rdma_images.jobs.results.result import Result


def fitting_entries(texts: Iterable[str], fabric: Fabric | None, facts: Troubleshooting) -> str:
    """Return the entries that fit the texts, for a terminal; "" where none fits."""
    return "\n".join(_short(name, entry) for name, entry in facts.find_fitting(texts, fabric))


def fitting_result(result: Result, scheduler_lines: Iterable[str], facts: Troubleshooting) -> str:
    """Return the entries for a result that is not good, or a job that failed."""
    lines = list(scheduler_lines)
    run = result.run("fabric")
    if run and result.exit_code:
        lines += [run.sentence, *(problem.sentence for problem in run.problems), *run.evidence]
    return fitting_entries(lines, result.fabric, facts)


def _short(name: str, entry: TroubleshootingEntry) -> str:
    return (
        f"{entry.symptom} (docs/guides/troubleshooting.md, {name})\n  see with   {entry.command}\n"
        f"  healthy    {entry.healthy}\n  fix        {entry.fix}"
    ).replace("`invoke ", f"`{COMMAND} ")
