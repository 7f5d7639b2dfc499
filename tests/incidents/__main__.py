"""Print how many incidents are reported, wrongly or not at all, and good images blamed."""

from collections.abc import Mapping

from tests.incidents import run
from tests.incidents.case import Incident, incidents


def figures(cases: Mapping[str, Incident], outcomes: Mapping[str, run.Outcome]) -> str:
    """Return recall, wrong reasons and false alarms, then a line for each case that is not right."""
    bad = [name for name, case in cases.items() if case.reported]
    good = [name for name, case in cases.items() if not case.reported]
    reported = [name for name in bad if outcomes[name].reported]
    wrong = [name for name in bad if not outcomes[name].reported and outcomes[name].alarms]
    blamed = [name for name in good if outcomes[name].alarms]
    field = [name for name in bad if cases[name].source != "invented"]
    silent = len(bad) - len(reported) - len(wrong)
    lines = [
        f"incidents: {len(bad)} ({len(field)} from the field, {len(bad) - len(field)} invented)",
        f"reported for the right reason: {len(reported)}; only for a wrong one: {len(wrong)}; not reported: {silent}",
        f"good images: {len(good)}; with an error: {len(blamed)}",
    ]
    faults = [name for name in cases if not outcomes[name].right(cases[name])]
    return "\n".join([*lines, *(_line(name, outcomes[name]) for name in faults)])


def _line(name: str, outcome: run.Outcome) -> str:
    texts = [f"; {check.id}: {check.actual}"[:160] for check in (*outcome.alarms, *outcome.unfixed)]
    return f"{name}: {'reported' if outcome.reported else 'not reported'}{''.join(texts)}"


if __name__ == "__main__":
    print(figures(incidents(), run.outcomes(incidents())))
