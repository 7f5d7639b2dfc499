"""Print which reports of a sample are told with their cause in a first line.

`python -m tests.incidents.sample tests/incidents/samples/2026-11-27-images-3.yaml`
"""

import sys
from pathlib import Path

from rdma_images.chain import compute
from rdma_images.core import yaml_file
from rdma_images.report.checks_table import headline
from tests.incidents import run
from tests.incidents.case import Cases, Incident


def first_lines(name: str, incident: Incident) -> list[str]:
    """Return the two lines of the answer, then the first line of each finding.

    Notes are none: they are folded.
    """
    case = run.read_image(name, incident.image)
    chain = compute(case, incident.fabric)
    checks = run.run_checks({name: incident.image})[name]
    failed = [check for check in checks if check.outcome == "failed" and check.severity != "note"]
    lines = [f"{check.id}: {headline(check)}" for check in failed]
    answer = ([chain.answer] if chain.outcome != "fabric" else []) + [chain.evidence] if chain else []
    return [*answer, *lines]


def is_reported(incident: Incident, lines: list[str]) -> bool:
    """Return whether one line has every word of the cause."""
    words = incident.reported.words if incident.reported else ()
    return any(all(word in line for word in words) for line in lines)


def main() -> None:
    """Print each report with what was told, and their share."""
    cases = yaml_file.load(Path(sys.argv[1]), Cases).root
    lines = {name: first_lines(name, incident) for name, incident in cases.items()}
    for name, incident in cases.items():
        outcome = "told" if is_reported(incident, lines[name]) else "NOT TOLD"
        print(outcome if incident.reported else "good image", name, *lines[name], sep="\n    ")
    reports = {name: incident for name, incident in cases.items() if incident.reported}
    print(f"{sum(is_reported(incident, lines[name]) for name, incident in reports.items())} of {len(reports)}")


if __name__ == "__main__":
    main()
