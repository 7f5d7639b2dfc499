"""The nearest combination that works, for one that does not."""

from collections.abc import Collection, Iterable, Iterator
from itertools import combinations, product

from rdma_images import components
from rdma_images.facts import Facts
from rdma_images.plan import axes, rules
from rdma_images.plan.candidate import Candidate, candidate
from rdma_images.plan.matrix import Target
from rdma_images.plan.refusals import BrokenRule

MAX_CHANGES = 2
Changes = dict[str, str]
Cost = tuple[int, int, int]  # requested values that change, untested values, distance
Step = tuple[Cost, str]  # the cost of a change to a value


def nearest(
    refused: Candidate,
    target: Target,
    facts: Facts,
    requested: Changes,
    broken_rules: tuple[BrokenRule, ...],
    fixed: Collection[str],
) -> Changes | None:
    """Return the smallest change of axes with which a refused combination works.

    Preferred in this order: fewer changes; `requested` values kept; values that were seen to work; values near the
    refused ones on their axis. The axes `fixed` do not change. A component that a rule misses is added in its newest
    version. None where no change of two axes helps.
    """
    if refused.foreign:
        return None
    steps = {axis: sorted(_steps(axis, refused, facts, requested)) for axis in refused.axes if axis not in fixed}
    added = {rule.missing_component: axes.NEWEST for rule in broken_rules if rule.missing_component in axes.OPTIONAL}
    culprits = [_culprits(refused, rule) for rule in broken_rules if rule.missing_component not in added]
    for count in range(0 if added else 1, MAX_CHANGES + 1):
        sets = [
            names for names in combinations(steps, count) if all(culprit.intersection(names) for culprit in culprits)
        ]
        for changes in _cheapest_first(sets, steps):
            if rules.is_allowed(candidate(refused.target, target, facts, refused.axes | added | changes), facts):
                return added | changes
    return None


def _steps(axis: str, refused: Candidate, facts: Facts, requested: Changes) -> Iterator[Step]:
    """Yield every other value of an axis, with the cost of the change."""
    known_values = axes.known_values(axes.BY_NAME[axis], facts)
    current = known_values.index(refused.versions.get(axis, refused.axes[axis]))
    component = components.BY_NAME.get(axis)
    for position, value in enumerate(known_values):
        if value != refused.axes[axis]:
            # Twice the distance, less one for the newer side: of two equally near values the newer one is taken.
            untested = component is not None and not component.was_tested(value, refused.fabric, facts)
            distance = 2 * abs(position - current) - int(position > current)
            yield (int(axis in requested), int(untested), distance), value


def _culprits(refused: Candidate, broken: BrokenRule) -> set[str]:
    """Return the axes worth changing: what a broken rule compares, what decides that, and what it decides.

    All axes if no versions are compared.
    """
    if not broken.versions:
        return set(refused.axes)
    related = set(broken.versions)
    for _ in range(2):  # libfabric is decided by the installer, and nothing goes deeper than that
        related |= {component.decided_by for component in refused.components.values() if component.name in related}
    return {axis for axis in refused.axes if axis in related or axes.BY_NAME[axis].decided_by in related}


def _cheapest_first(sets: Iterable[tuple[str, ...]], steps: dict[str, list[Step]]) -> list[Changes]:
    """Return all choices of one value for each axis of each set, cheapest first; its steps' costs add up."""
    choices = []
    for names in sets:
        for places in product(*(range(len(steps[name])) for name in names)):
            chosen = [steps[name][place] for name, place in zip(names, places, strict=True)]
            cost = tuple(map(sum, zip(*(cost for cost, _ in chosen), strict=True)))
            choices.append((cost, names, places, [value for _, value in chosen]))
    return [dict(zip(names, values, strict=True)) for _, names, _, values in sorted(choices)]
