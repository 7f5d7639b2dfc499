"""Show the pairs to measure, and what the measured ones say."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rdma_images.jobs.pairs import bandwidths, pair_rounds
from rdma_images.jobs.pairs.pair_rounds import Inference, Pair, Round

MAX_SHOWN = 8  # nodes without a log


@dataclass(frozen=True)
class PairReport:
    """The rounds to run next, and what is known so far."""

    sentence: str
    rounds: tuple[Round, ...]  # to run one after another
    inference: Inference | None  # None where nothing was measured yet


def first_report(nodes: Sequence[str], rounds: int) -> PairReport:
    """Return what to measure first."""
    first = pair_rounds.first_rounds(nodes, rounds)
    pairs = sum(map(len, first))
    word = "round" if len(first) == 1 else "rounds"
    note = "" if len(nodes) < pair_rounds.FEW else "; suspects then need one more with good nodes"
    return PairReport(
        f"{len(nodes)} nodes: {len(first)} {word}, {pairs} pairs, those of a round at once{note}", first, None
    )


def next_report(nodes: Sequence[str], by_pair: Mapping[Pair, float], expected: float) -> PairReport:
    """Return what the pairs show, and what to measure next."""
    inference = pair_rounds.infer(nodes, by_pair, expected)
    following = pair_rounds.next_round(nodes, by_pair, expected)
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
    if remaining := pair_rounds.rounds_left(inference):
        parts[-1] += (
            f"{':' if inference.unmeasured else ','} {remaining} more round{'s' if remaining != 1 else ''} at least"
        )
    if not parts:
        parts.append("no node is slow")
    return PairReport("; ".join(parts), (following,) if following else (), inference)


def report_lines(report: PairReport, by_pair: Mapping[Pair, float]) -> Iterator[str]:
    """Yield the report, pairs to run as words that a shell's loop can read."""
    yield report.sentence
    if report.inference:
        limit = f"{1 - pair_rounds.TOLERANCE:.0%}"
        yield f"good pairs have {report.inference.reference:.4g} GB/s; slow is below {limit} of that"
        partners = bandwidths.partners_by_node(by_pair)
        for node in (*report.inference.slow, *report.inference.suspects):
            listed = ", ".join(f"{busbw:.4g} with {second}" for second, busbw in partners[node])
            yield f"  {node}: {listed} GB/s"
        for link in report.inference.links:
            yield f"  {'--'.join(link)}: {by_pair[link]:.4g} GB/s"
    for n, pairs in enumerate(report.rounds, 1):
        yield f"# round {n}"
        yield from (f"{first} {second}" for first, second in pairs)
