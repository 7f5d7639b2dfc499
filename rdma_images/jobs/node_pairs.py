"""Slow nodes and links, by jobs on two nodes each: disjoint pairs at once, then suspects with good nodes."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError, suggestion
from rdma_images.core.sizes import format_count
from rdma_images.jobs.results import expected_bandwidth, from_logs

Pair = tuple[str, str]  # in the order of the nodes
Round = tuple[Pair, ...]  # disjoint: they run at once

# Fewer nodes than that are measured each with each: with three slow among them, one round may have no good pair.
FEW = 8
TOLERANCE = 0.2  # of the reference: runs of one pair differ by a few percent, a lost adapter or link costs a quarter
MAX_SHOWN = 8  # nodes without a log

SEPARATOR = "--"  # the nodes of a pair, in the name of its folder or file
ENDINGS = (".json", ".log", ".txt", ".out")
MAX_NODES = 10_000


@dataclass(frozen=True)
class Inference:
    """The conclusions of some rounds: each measured node is good, slow or a suspect."""

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
    """Yield rounds in which each node meets every other one once."""
    ring: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    order = {node: n for n, node in enumerate(nodes)}
    for _ in range(len(ring) - 1):
        facing = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]), strict=True)
        yield tuple(_pair(first, second, order) for first, second in facing if first is not None and second is not None)
        ring = [ring[0], ring[-1], *ring[1:-1]]


def _pair(first: str, second: str, order: Mapping[str, int]) -> Pair:
    return (first, second) if order[first] < order[second] else (second, first)


def infer(nodes: Sequence[str], measured: Mapping[Pair, float], expected: float = 0.0) -> Inference:
    """Return which nodes are slow by their pairs' bus bandwidths in GB/s; 0 is a failure.

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
    ordered = list(values)
    best = max(ordered, default=0.0)
    return median([value for value in ordered if value >= (1 - TOLERANCE) * best]) if ordered else 0.0


def next_round(nodes: Sequence[str], measured: Mapping[Pair, float], expected: float = 0.0) -> Round:
    """Return pairs of suspects and unmeasured nodes with good nodes they have not met.

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


@dataclass(frozen=True)
class PairReport:
    """The rounds to run next, and what is known so far."""

    sentence: str
    rounds: tuple[Round, ...]  # to run one after another
    inference: Inference | None  # None where nothing was measured yet


def first_report(nodes: Sequence[str], rounds: int) -> PairReport:
    """Return what to measure first."""
    first = first_rounds(nodes, rounds)
    pairs = sum(map(len, first))
    word = "round" if len(first) == 1 else "rounds"
    note = "" if len(nodes) < FEW else "; suspects then need one more with good nodes"
    return PairReport(
        f"{len(nodes)} nodes: {len(first)} {word}, {pairs} pairs, those of a round at once{note}", first, None
    )


def next_report(nodes: Sequence[str], by_pair: Mapping[Pair, float], expected: float) -> PairReport:
    """Return what the pairs show, and what to measure next."""
    inference = infer(nodes, by_pair, expected)
    following = next_round(nodes, by_pair, expected)
    parts = [f"slow: {', '.join(inference.slow)}"] if inference.slow else []
    parts += (
        [f"slow between good nodes: {', '.join('--'.join(link) for link in inference.links)}"]
        if inference.links
        else []
    )
    if inference.suspects and not inference.good:
        parts.append("every pair is slow: no good node to pair suspects with")
    elif inference.suspects:
        parts.append(f"{len(inference.suspects)} suspects")
    if inference.unmeasured:
        remainder = " and more" if len(inference.unmeasured) > MAX_SHOWN else ""
        parts.append(f"no log has {', '.join(inference.unmeasured[:MAX_SHOWN])}{remainder}")
    if remaining := rounds_left(inference):
        parts[-1] += f"{':' if inference.unmeasured else ','} {format_count(remaining, 'more round')} at least"
    if not parts:
        parts.append("no node is slow")
    return PairReport("; ".join(parts), (following,) if following else (), inference)


def report_lines(report: PairReport, by_pair: Mapping[Pair, float]) -> Iterator[str]:
    """Yield the report, pairs to run as words that a shell's loop can read."""
    yield report.sentence
    if report.inference:
        limit = f"{1 - TOLERANCE:.0%}"
        yield f"good pairs have {report.inference.reference:.4g} GB/s; slow is below {limit} of that"
        partners = partners_by_node(by_pair)
        for node in (*report.inference.slow, *report.inference.suspects):
            listed = ", ".join(f"{busbw:.4g} with {second}" for second, busbw in partners[node])
            yield f"  {node}: {listed} GB/s"
        for link in report.inference.links:
            yield f"  {'--'.join(link)}: {by_pair[link]:.4g} GB/s"
    for n, pairs in enumerate(report.rounds, 1):
        yield f"# round {n}"
        yield from (f"{first} {second}" for first, second in pairs)


def read_nodes(path: Path) -> tuple[str, ...]:
    """Return the nodes of a hostfile: each line's first word. Raises RefusedError."""
    words = [line.split("#")[0].split() for line in files.read_text(path).splitlines()]
    node_names = [line[0] for line in words if line]
    repeated = next((node for n, node in enumerate(node_names) if node in node_names[:n]), None)
    invalid = next((node for node in node_names if not re.fullmatch(r"[\w.:-]{1,253}", node)), None)
    if invalid or repeated:
        problem = f"{invalid!r} is no name of a node" if invalid else f"{repeated} is in it twice"
        raise RefusedError(f"{path}: {problem}\nwrite one node a line")
    if not 2 <= len(node_names) <= MAX_NODES:
        raise RefusedError(f"{path}: {len(node_names)} nodes\npairs need 2 to {MAX_NODES} of them, one a line")
    return tuple(node_names)


def read_pairs(path: Path, nodes: Sequence[str]) -> dict[Pair, float]:
    """Return each pair's bus bandwidth at the largest size, in GB/s; 0 for none.

    Args:
        path: A folder that has a run, logs or a result.json for each pair, named "one--two", or a file of lines
            "one two 123.4". Of a pair that was measured twice the later name counts.

    Raises:
        RdmaImagesError: A file cannot be read.
        RefusedError: A node is not among `nodes`.
    """
    order = {node: n for n, node in enumerate(nodes)}
    by_pair: dict[Pair, float] = {}
    for first, second, busbw in _folder(path) if path.is_dir() else _lines(path):
        for node in (first, second):
            if node not in order:
                raise RefusedError(f"{path}: {node} is not among the nodes\n{suggestion(node, nodes)}")
        if first == second:
            raise RefusedError(f"{path}: {first} is paired with itself\ntwo nodes make a pair")
        by_pair[(first, second) if order[first] < order[second] else (second, first)] = busbw
    return by_pair


def _lines(path: Path) -> Iterator[tuple[str, str, float]]:
    """Yield (first node, second node, GB/s) for each line of a file; 0.0 for a number out of range."""
    for n, line in enumerate(files.read_text(path).splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        try:
            first, second, busbw = words[0], words[1], float(words[2])
        except (IndexError, ValueError):
            raise RefusedError(f'{path}:{n}: not "one two GB/s"\nwrite two nodes and a number') from None
        yield first, second, busbw if 0 <= busbw < 1e6 else 0.0


def _folder(path: Path) -> Iterator[tuple[str, str, float]]:
    """Yield (first node, second node, GB/s) for each log of a folder that is named after two nodes."""
    for entry in files.list_folder(path):
        name = next((entry.name.removesuffix(ending) for ending in ENDINGS if entry.name.endswith(ending)), entry.name)
        first, separator, second = name.partition(SEPARATOR)
        if separator and first and second:
            yield first, second, _busbw(entry)


def _busbw(path: Path) -> float:
    """Return what the job of a pair measured."""
    try:
        result = from_logs.read_result(path)
    except RdmaImagesError:
        if path.is_file():
            raise
        return 0.0  # a folder without logs: the job never ran
    return expected_bandwidth.best_busbw(result.runs[0].largest) or 0.0


def parse_rate(text: str) -> float:
    """Return the GB/s in `text`; 0 for an empty text. Raises RefusedError for what is no rate."""
    if not text:
        return 0.0
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text) or not float(text):
        raise RefusedError(f"--expected {text}: not a rate\nwrite GB/s as a number, such as 400")
    return float(text)


def partners_by_node(measured: Mapping[Pair, float]) -> dict[str, list[tuple[str, float]]]:
    """Return the partners of each node, with the bandwidth of each pair."""
    partners: dict[str, list[tuple[str, float]]] = {}
    for (first, second), busbw in measured.items():
        partners.setdefault(first, []).append((second, busbw))
        partners.setdefault(second, []).append((first, busbw))
    return partners
