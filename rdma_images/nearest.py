"""The nearest combination that works, for one that does not."""

from collections.abc import Iterator
from itertools import combinations

from rdma_images import axes, rules
from rdma_images.candidate import Candidate, candidate
from rdma_images.facts import Facts
from rdma_images.matrix import Target
from rdma_images.model import Broken

MOST_CHANGES = 2
Changes = dict[str, str]
Cost = tuple[int, int]


def nearest(
    refused: Candidate, target: Target, facts: Facts, wanted: Changes, broken: tuple[Broken, ...]
) -> Changes | None:
    """The axes to change, and their values, so that `refused` works; None where no change of two axes helps.

    One change is nearer than two, keeping what was asked for (`wanted`) nearer than giving it up, and a value nearer
    the refused one in the order of its axis nearer than another.
    """
    if refused.foreign:
        return None
    steps = {axis: list(_steps(axis, refused, facts, wanted)) for axis in refused.axes}
    culprits = _culprits(refused, broken)
    for count in range(1, MOST_CHANGES + 1):
        sets = [names for names in combinations(steps, count) if culprits & set(names)]
        for changes in _cheapest_first(sets, steps):
            if not rules.check(candidate(refused.target, target, facts, refused.axes | changes), facts):
                return changes
    return None


def _steps(axis: str, refused: Candidate, facts: Facts, wanted: Changes) -> Iterator[tuple[Cost, str]]:
    """Every other value of an axis, with what it costs to go there."""
    known = axes.values(axes.BY_NAME[axis], facts)
    current = known.index(refused.versions.get(axis, refused.axes[axis]))
    for place, value in enumerate(known):
        if value != refused.axes[axis] and value != refused.versions.get(axis):
            # Twice the distance, less one for the newer side: of two equally near values the newer one is taken.
            yield (int(axis in wanted), 2 * abs(place - current) - int(place > current)), value


def _culprits(refused: Candidate, broken: tuple[Broken, ...]) -> set[str]:
    """The axes of which one must change: those that the first broken rule relates, and what decides them."""
    related = set(broken[0].versions)
    related |= {component.decided_by for component in refused.components.values() if component.name in related}
    related |= {component.decided_by for component in refused.components.values() if component.name in related}
    return related & set(refused.axes)


def _cheapest_first(sets: list[tuple[str, ...]], steps: dict[str, list[tuple[Cost, str]]]) -> Iterator[Changes]:
    """Every choice of one value for each axis of each set, the cheapest first."""
    priced: list[tuple[Cost, Changes]] = []
    for names in sets:
        partial: list[tuple[Cost, Changes]] = [((0, 0), {})]
        for name in names:
            partial = [
                ((cost[0] + more[0], cost[1] + more[1]), changes | {name: value})
                for cost, changes in partial
                for more, value in steps[name]
            ]
        priced += partial
    yield from (changes for _, changes in sorted(priced, key=lambda pair: pair[0]))
