"""Choose the pairs to measure at once, and infer the slow nodes from their bus bandwidths."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

Pair = tuple[str, str]  # in the order of the nodes
Round = tuple[Pair, ...]  # disjoint: they run at once

# Fewer nodes than that are measured each with each: with three slow among them, one round may have no good pair.
FEW = 8
TOLERANCE = 0.2  # of the reference: runs of one pair differ by a few percent, a lost adapter or link costs a quarter


@dataclass(frozen=True)
class Inference:
    """The conclusions of some rounds. A node is in one of `good`, `slow`, `suspects`, or was not measured."""

    reference: float  # GB/s of good pairs
    good: tuple[str, ...]  # in a pair that is as fast as others
    slow: tuple[str, ...]  # slow with two partners, one of them good, and fast with none
    links: tuple[Pair, ...]  # slow, and both of its nodes are good with others
    suspects: tuple[str, ...]  # in slow pairs alone, and not decided yet
    unmeasured: tuple[str, ...]  # in no pair that left a log

    @property
    def undecided(self) -> tuple[str, ...]:
        """Return the nodes that have to be measured again, each with a good one: suspects first."""
        return (*self.suspects, *self.unmeasured)


def first_rounds(nodes: Sequence[str], rounds: int = 0) -> tuple[Round, ...]:
    """Return the rounds to begin with: `rounds` of them, or as many as tell slow nodes.

    One round has each node once (two for an odd number, in which one node rests). Few nodes are paired each with each.
    A slow link shows where its pair is measured; every further round measures other pairs.
    """
    enough = len(nodes) if len(nodes) < FEW else 1 + len(nodes) % 2
    return tuple(islice(_round_robin(nodes), rounds or enough))


def _round_robin(nodes: Sequence[str]) -> Iterator[Round]:
    """Yield rounds in which each node meets every other once: the first stays, the others go round it."""
    ring: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    order = {node: n for n, node in enumerate(nodes)}
    for _ in range(len(ring) - 1):
        facing = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]), strict=True)
        yield tuple(_pair(first, second, order) for first, second in facing if first is not None and second is not None)
        ring = [ring[0], ring[-1], *ring[1:-1]]


def _pair(first: str, second: str, order: Mapping[str, int]) -> Pair:
    return (first, second) if order[first] < order[second] else (second, first)


def infer(nodes: Sequence[str], measured: Mapping[Pair, float], expected: float = 0.0) -> Inference:
    """Infer from the bus bandwidths of pairs, in GB/s, which nodes are slow; 0 for a pair whose job failed.

    Without `expected`, the fastest pair is the reference: where all are alike, all are good.
    """
    reference = expected or _reference(measured.values())
    fast = {pair for pair, busbw in measured.items() if busbw >= (1 - TOLERANCE) * reference and busbw > 0}
    good = {node for pair in fast for node in pair}
    partners: dict[str, set[str]] = {}
    for first, second in measured.keys() - fast:
        partners.setdefault(first, set()).add(second)
        partners.setdefault(second, set()).add(first)
    slow = {
        node
        for node, partners_of_node in partners.items()
        if node not in good and len(partners_of_node) > 1 and partners_of_node & good
    }
    links = [pair for pair in measured if pair not in fast and good.issuperset(pair)]
    measured_nodes = {node for pair in measured for node in pair}

    def ordered(names: Iterable[str]) -> tuple[str, ...]:
        members = set(names)
        return tuple(node for node in nodes if node in members)

    return Inference(
        reference=reference,
        good=ordered(good),
        slow=ordered(slow),
        links=tuple(sorted(links)),
        suspects=ordered(partners.keys() - good - slow),
        unmeasured=ordered(set(nodes) - measured_nodes),
    )


def _reference(values: Iterable[float]) -> float:
    """Return what good pairs have: the middle of those within the tolerance of the fastest."""
    bandwidths = list(values)
    best = max(bandwidths, default=0.0)
    return median([value for value in bandwidths if value >= (1 - TOLERANCE) * best]) if bandwidths else 0.0


def next_round(nodes: Sequence[str], measured: Mapping[Pair, float], expected: float = 0.0) -> Round:
    """Return the pairs that decide on suspects and on nodes without a log, each with a good node it has not met.

    Without a good node, those without a log are paired with each other. Empty where nothing can be decided.
    """
    inference = infer(nodes, measured, expected)
    order = {node: n for n, node in enumerate(nodes)}
    if not inference.good and len(inference.unmeasured) > 1:
        return next(_round_robin(inference.unmeasured))
    free = list(inference.good)
    pairs: list[Pair] = []
    for suspect in inference.undecided:
        partner = next((candidate for candidate in free if _pair(suspect, candidate, order) not in measured), None)
        if partner:
            free.remove(partner)
            pairs.append(_pair(suspect, partner, order))
    return tuple(pairs)


def rounds_left(inference: Inference) -> int:
    """Return how many rounds the undecided nodes need at least, each with another good node."""
    if not inference.undecided or not inference.good:
        return 0
    return -(-len(inference.undecided) // len(inference.good))
