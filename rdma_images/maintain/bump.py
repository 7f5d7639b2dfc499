"""Propose the newest rows that pass every rule, as an edit of matrix.yaml."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from rdma_images import components
from rdma_images.core import atomic, paths, yaml_file
from rdma_images.facts import Facts
from rdma_images.plan import axes, matrix, rules
from rdma_images.plan.candidate import candidate
from rdma_images.plan.matrix import Matrix, Row, Target

# A base or a platform is a choice, not a version to keep up with; python and CUDA follow from others.
VERSIONED = tuple(component.name for component in components.ALL if component.is_bumped)


@dataclass(frozen=True)
class AxisBump:
    """One axis of one target's default row that can be newer."""

    target: str
    axis: str
    old: str
    new: str


def find_bumps(current: Matrix, facts: Facts) -> tuple[AxisBump, ...]:
    """Return what can be newer in default rows, all changes of a target together."""
    bumps: list[AxisBump] = []
    for name, target in current.targets.items():
        newest = _newest_row(name, target, facts)
        bumps += [AxisBump(name, axis, target.default[axis], value) for axis, value in newest.items()]
    return tuple(bumps)


def edit_matrix(text: str, current: Matrix, bumps: tuple[AxisBump, ...]) -> str:
    """Return the text of matrix.yaml with new values in place of the old ones.

    Where the new value is among a target's values already, only the default row changes.
    Raises RefusedError when the result is no matrix any more.
    """
    lines = text.splitlines(keepends=True)
    for bump in bumps:
        target = current.target(bump.target)
        only_default = bump.new in target.values.get(bump.axis, ())
        old_value = re.compile(rf"(?<![\w.]){re.escape(bump.old)}(?![\w.])")
        for key_path, axis, value in matrix.written_values(target):
            if (axis, value) == (bump.axis, bump.old) and not (only_default and key_path[0] != "default"):
                number = current.line("targets", bump.target, *key_path) - 1
                content, hash_, comment = lines[number].partition("#")
                lines[number] = old_value.sub(bump.new, content, count=1) + hash_ + comment
    edited_text = "".join(lines)
    yaml_file.loads(edited_text, Matrix, "the edited matrix.yaml")
    return edited_text


@dataclass(frozen=True)
class Proposal:
    """An edit of matrix.yaml."""

    diff: str  # empty where it is as new as it can be
    remarks: tuple[str, ...]  # what a person has to check before accepting it


def propose(facts: Facts, path: Path = paths.MATRIX, write: bool = False) -> Proposal:
    """Return the edit of the matrix at `path`, and with `write` make it."""
    current, text = matrix.load(path), path.read_text(encoding="utf-8")
    current.check(facts)
    bumps = find_bumps(current, facts)
    edited_text = edit_matrix(text, current, bumps)
    if write and edited_text != text:
        atomic.write(path, edited_text)
    lines = text.splitlines(True), edited_text.splitlines(True)
    diff = "".join(difflib.unified_diff(*lines, path.name, path.name))
    return Proposal(diff, (*_comments(*lines, path.name), *_gaps(bumps, current, facts)))


def _comments(old_lines: list[str], new_lines: list[str], name: str) -> Iterator[str]:
    """Yield the comments beside values that change: they were written about the old ones."""
    for number, (old_line, new_line) in enumerate(zip(old_lines, new_lines, strict=True), 1):
        if old_line != new_line and (comment := new_line.partition("#")[2].strip()):
            yield f'{name}:{number}: is the comment still true? "{comment}"'


def _gaps(bumps: tuple[AxisBump, ...], current: Matrix, facts: Facts) -> Iterator[str]:
    """Yield what the facts do not know about the new rows."""
    for name in dict.fromkeys(bump.target for bump in bumps):
        row = {bump.axis: bump.new for bump in bumps if bump.target == name}
        for gap in rules.unknown_facts(candidate(name, current.target(name), facts, row), facts):
            yield f"{name}: not known: {gap}"


def _newest_row(name: str, target: Target, facts: Facts) -> Row:
    """Return the changes to the default row of `target` that make it newest.

    Earlier axes of VERSIONED matter more.
    """
    version_axes = [axis for axis in VERSIONED if axis in target.default]
    for values in product(*(_candidate_values(axis, target.default[axis], facts) for axis in version_axes)):
        row = dict(zip(version_axes, values, strict=True))
        if rules.is_allowed(candidate(name, target, facts, row), facts):
            return {axis: value for axis, value in row.items() if value != target.default[axis]}
    return {}


def _candidate_values(axis: str, current: str, facts: Facts) -> Iterator[str]:
    """Yield an axis' values from the newest to the current one."""
    if current == axes.BY_NAME[axis].decided_by:
        yield current
        return
    for value in reversed(list(axes.BY_NAME[axis].values(facts))):
        yield value
        if value == current:
            return
