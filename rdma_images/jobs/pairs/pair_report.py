"""Pairs to measure, and what they said, for people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rdma_images.jobs.pairs import bandwidths, pair_rounds
from rdma_images.jobs.pairs.pair_rounds import Inference, Pair, Round

SHOWN = 8  # nodes without a log


@dataclass(frozen=True)
class Answer:
    """Rounds to run next, and what is known so far."""

    sentence: str
    rounds: tuple[Round, ...]  # to run one after another
    known: Inference | None  # None where nothing was measured yet


def begin(nodes: Sequence[str], rounds: int) -> Answer:
    """What to measure first."""
    first = pair_rounds.first_rounds(nodes, rounds)
    pairs = sum(map(len, first))
    word = "round" if len(first) == 1 else "rounds"
    more = "" if len(nodes) < pair_rounds.FEW else "; suspects then need one more with good nodes"
    return Answer(
        f"{len(nodes)} nodes: {len(first)} {word}, {pairs} pairs, those of a round at once{more}", first, None
    )


def proceed(nodes: Sequence[str], found: Mapping[Pair, float], expected: float) -> Answer:
    """What the pairs say, and what to measure next."""
    known = pair_rounds.infer(nodes, found, expected)
    following = pair_rounds.next_round(nodes, found, expected)
    parts = [f"slow: {', '.join(known.slow)}"] if known.slow else []
    parts += [f"slow between good nodes: {', '.join('--'.join(link) for link in known.links)}"] if known.links else []
    if known.suspects and not known.good:
        parts.append("every pair is slow: no good node to pair suspects with")
    elif known.suspects:
        parts.append(f"{len(known.suspects)} suspects")
    if known.unmeasured:
        more = " and more" if len(known.unmeasured) > SHOWN else ""
        parts.append(f"no log has {', '.join(known.unmeasured[:SHOWN])}{more}")
    if left := pair_rounds.rounds_left(known):
        parts[-1] += f"{':' if known.unmeasured else ','} {left} more round{'s' if left != 1 else ''} at least"
    if not parts:
        parts.append("no node is slow")
    return Answer("; ".join(parts), (following,) if following else (), known)


def text(answer: Answer, found: Mapping[Pair, float]) -> str:
    """The answer as lines, pairs to run as words that a shell's loop can read."""
    return "\n".join(_lines(answer, found))


def _lines(answer: Answer, found: Mapping[Pair, float]) -> Iterator[str]:
    yield answer.sentence
    if answer.known:
        limit = f"{1 - pair_rounds.TOLERANCE:.0%}"
        yield f"good pairs have {answer.known.reference:.4g} GB/s; slow is below {limit} of that"
        partners = bandwidths.by_node(found)
        for node in (*answer.known.slow, *answer.known.suspects):
            said = ", ".join(f"{busbw:.4g} with {other}" for other, busbw in partners[node])
            yield f"  {node}: {said} GB/s"
        for link in answer.known.links:
            yield f"  {'--'.join(link)}: {found[link]:.4g} GB/s"
    for n, pairs in enumerate(answer.rounds, 1):
        yield f"# round {n}"
        yield from (f"{one} {other}" for one, other in pairs)
