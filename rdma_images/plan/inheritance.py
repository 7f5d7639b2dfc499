"""Targets that are another one and a little more: `like` in matrix.yaml."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from rdma_images.core import files, paths
from rdma_images.core.errors import RefusedError, suggestion

# What belongs to one target alone: its own matrix, and what it says of itself.
NOT_INHERITED = frozenset({"values", "exclude", "like"})


def merged_target(name: str, targets: Mapping[str, Any], seen: tuple[str, ...] = ()) -> Any:
    """Return the target with everything it inherits from the target that its `like` names.

    Mappings (`default`, `env`) merge key by key, lists are appended, and any other value replaces the inherited one.
    The other target may be of the same file, or one that the tool brings.

    Raises RefusedError for a target that is not there, and for a circle.
    """
    target = targets[name]
    if not isinstance(target, dict) or not isinstance(target.get("like"), str):
        return target
    other = target["like"]
    if other in (*seen, name):
        raise RefusedError(f"{name} is like {other}, which is like {name}\nwrite one of them without like")
    if other in targets:
        inherited = merged_target(other, targets, (*seen, name))
    elif other in (built_in := _built_in_targets()):
        inherited = merged_target(other, built_in, (*seen, name))
    else:
        raise RefusedError(f"{other}: no such target\n{suggestion(other, [*targets, *built_in])}")
    if not isinstance(inherited, dict):
        return target
    inherited = {key: value for key, value in inherited.items() if key not in NOT_INHERITED}
    inherited.setdefault("template", other)
    return {key: value for key, value in target.items() if key not in inherited} | {
        key: _joined(value, target[key]) if key in target else value for key, value in inherited.items()
    }


def _joined(inherited: Any, written: Any) -> Any:
    """Merge mappings key by key, and append lists; any other written value replaces the inherited one."""
    if isinstance(inherited, dict) and isinstance(written, dict):
        return inherited | written
    if isinstance(inherited, list) and isinstance(written, list):
        return [*inherited, *(value for value in written if value not in inherited)]
    return written


@cache
def _built_in_targets() -> Mapping[str, Any]:
    """Return the targets of the matrix.yaml that the tool brings, as they are written."""
    text = files.read_text(paths.DATA / "matrix.yaml")
    targets = yaml.load(text, yaml.CBaseLoader)["targets"]
    assert isinstance(targets, dict)
    return targets
