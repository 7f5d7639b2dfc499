"""The validators' outcomes for the measurements of a real image, changed in places."""

import json
from typing import Any

from rdma_images.inspection.inspection import Inspection
from rdma_images.validate import suite
from tests.support import case_parts

LIBRARY_PARTS = ("nccl", "closures", "resolved", "plugins", "headers", "variables")
Changes = dict[str, Any]  # by name: a dictionary changes the known one, None takes the name away


def changed(**changes: Changes) -> Inspection:
    """Return the case of efa-pytorch with changes in its places, see `_places`."""
    case = json.loads(case_parts.RECORDED.read_text())
    for path, values in changes.items():
        target = _parts_by_name(case)[path]
        for name, value in values.items():
            merge = isinstance(target.get(name), dict) and isinstance(value, dict)
            target[name] = {**target[name], **value} if merge else value
            if value is None:
                del target[name]
    return Inspection.model_validate(case)


def check_outcome(check: str, **changes: Changes) -> str:
    """Return a check's outcome for the changed case: "passed", "left out", or the outcome and its words."""
    results = suite.run(changed(**changes), only={check})
    if not results:
        return "left out"
    (result,) = results
    return result.outcome if result.outcome == "passed" else f"{result.outcome}: {result.reason or result.actual}"


def _parts_by_name(case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    subject, measured = case["subject"], case["measured"]
    tree = measured.get("tree") or {"files": {}, "libraries": {}}
    return {
        "subject": subject,
        "environment": subject["environment"],
        "labels": subject["labels"],
        "planned": case["expected"]["components"],
        "measured": measured,
        "torch": measured.get("torch") or {},
        "tools": measured["tools"],
        "wheels": measured["packages"]["wheels"]["/opt/venv/site-packages"],
        "dpkg": measured["packages"]["dpkg"],
        "tree": tree["files"],
        "files": tree["files"].get("library_files", {}),
        **{name: tree["libraries"].setdefault(name, {}) for name in LIBRARY_PARTS},
    }
