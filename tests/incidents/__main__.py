"""Print how many incidents are told, for the wrong reason or not at all, and how many good images are blamed."""

from collections.abc import Mapping

from tests.incidents import run
from tests.incidents.case import Incident, incidents


def figures(cases: Mapping[str, Incident], found: Mapping[str, run.Outcome]) -> str:
    """Recall, wrong reasons and false alarms, then each case that is not right."""
    bad = {name: case for name, case in cases.items() if case.told}
    good = {name: case for name, case in cases.items() if not case.told}
    told = [name for name in bad if found[name].told]
    wrong = [name for name in bad if not found[name].told and found[name].beside]
    alarms = [name for name in good if found[name].beside]
    unseen = [case for case in bad.values() if case.first != "known"]
    first = [case for case in unseen if case.first == "right"]
    field = [name for name in bad if cases[name].where != "invented"]
    silent = len(bad) - len(told) - len(wrong)
    lines = [
        f"incidents: {len(bad)} ({len(field)} from the field, {len(bad) - len(field)} invented)",
        f"told for the right reason: {len(told)}; for a wrong one alone: {len(wrong)}; not told: {silent}",
        f"of the {len(unseen)} that were written before their checks, told at first sight: {len(first)}",
        f"good images: {len(good)}; with an error: {len(alarms)}"
        f" (when they were written: {sum(case.first == 'wrong' for case in good.values())})",
    ]
    return "\n".join([*lines, *(_line(name, found[name]) for name in cases if not found[name].right(cases[name]))])


def _line(name: str, outcome: run.Outcome) -> str:
    said = [f"{check.id}: {check.found}" for check in (*outcome.beside, *outcome.fix)]
    return f"{name}: {'told' if outcome.told else 'not told'}{''.join(f'; {text[:160]}' for text in said)}"


if __name__ == "__main__":
    print(figures(incidents(), run.outcomes(incidents())))
