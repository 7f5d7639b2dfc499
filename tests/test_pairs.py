"""Slow nodes and links are found from noisy pairs, in as few rounds as the plan says."""

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.jobs.pairs import measured, plan, view
from rdma_images.jobs.pairs.plan import Inference, Pair
from tests.results_parts import P5, write

SIZES = (4, 5, 6, 7, 8, 9, 12, 31, 64, 255, 512)


def named(count: int) -> list[str]:
    return [f"node-{n:03}" for n in range(count)]


def found(
    nodes: Sequence[str], slow: Mapping[str, float], links: Mapping[Pair, float], seed: int
) -> tuple[Inference, int]:
    """What the plan finds on a cluster of 400 GB/s with 3% of noise, and in how many rounds."""
    chance = random.Random(seed)
    timings: dict[Pair, float] = {}
    rounds = 0

    def measure(pairs: Sequence[Pair]) -> None:
        for one, other in pairs:
            share = min(slow.get(one, 1.0), slow.get(other, 1.0), links.get((one, other), 1.0))
            timings[one, other] = 400 * share * chance.gauss(1, 0.03)

    for pairs in plan.first_rounds(nodes):
        measure(pairs)
        rounds += 1
    while pairs := plan.next_round(nodes, timings):
        measure(pairs)
        rounds += 1
    return plan.infer(nodes, timings), rounds


@pytest.mark.parametrize("count", SIZES)
def test_each_round_has_disjoint_pairs_and_none_is_repeated(count: int) -> None:
    nodes = named(count)
    rounds = plan.first_rounds(nodes, count)
    assert all(len({node for pair in pairs for node in pair}) == 2 * len(pairs) for pairs in rounds)
    pairs = [pair for one in rounds for pair in one]
    assert sorted(pairs) == sorted(combinations(nodes, 2))


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("bad", [0, 1, 2, 3])
def test_slow_nodes_are_found_and_no_others(count: int, bad: int) -> None:
    if bad > count - 2:
        bad = count - 2  # without two good nodes no pair is good
    for seed in range(12 if count < 100 else 3):
        nodes = named(count)
        slow = {node: random.Random(seed).uniform(0.2, 0.7) for node in random.Random(seed).sample(nodes, bad)}
        known, rounds = found(nodes, slow, {}, seed)
        assert set(known.slow) == set(slow), seed
        assert (known.links, known.suspects, known.unmeasured) == ((), (), ())
        most = count - 1 + count % 2 if count < plan.FEW else (2 if count > 12 else 4) + count % 2
        assert rounds <= most


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("bad", [1, 2])
def test_slow_links_are_told_from_slow_nodes(count: int, bad: int) -> None:
    nodes = named(count)
    for seed in range(6):
        links = dict.fromkeys(random.Random(seed).sample(plan.first_rounds(nodes)[0], bad), 0.5)
        known, _ = found(nodes, {}, links, seed)
        assert set(known.links) == set(links), seed
        assert known.slow == ()


def test_a_slow_node_and_a_slow_link_at_once() -> None:
    nodes = named(64)
    (first, second, *_) = plan.first_rounds(nodes)[0]
    known, rounds = found(nodes, {first[0]: 0.5}, {second: 0.6}, 1)
    assert (known.slow, known.links, rounds) == ((first[0],), (second,), 2)


def test_where_every_pair_is_alike_only_an_expectation_tells_that_all_are_slow() -> None:
    nodes = named(8)
    timings = dict.fromkeys(plan.first_rounds(nodes)[0], 20.0)
    assert plan.infer(nodes, timings).suspects == ()
    assert plan.infer(nodes, timings, 77.0).suspects == tuple(nodes)
    assert "no good node" in view.proceed(nodes, timings, 77.0).sentence


def test_a_pair_whose_job_failed_is_slow() -> None:
    nodes = named(8)
    timings = dict.fromkeys(plan.first_rounds(nodes)[0], 400.0)
    timings[next(iter(timings))] = 0.0
    assert len(plan.next_round(nodes, timings)) == 2


def test_pairs_are_read_from_a_folder_of_runs_and_from_lines(tmp_path: Path) -> None:
    write(tmp_path / "pairs" / "a--b" / "logs")
    write(tmp_path / "pairs" / "d--c", rows=P5[:2])
    (tmp_path / "pairs" / "a--c").mkdir()
    known = ("a", "b", "c", "d")
    assert measured.read(tmp_path / "pairs", known) == {("a", "b"): 487.09, ("c", "d"): 436.95, ("a", "c"): 0.0}
    (tmp_path / "lines").write_text("# pair GB/s\nb a 12.5\nc d 400\n")
    assert measured.read(tmp_path / "lines", known) == {("a", "b"): 12.5, ("c", "d"): 400.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [("a\na\n", "twice"), ("a\n", "1 nodes"), ("a\nb;rm\n", "no name"), ("", "0 nodes")],
)
def test_a_file_of_nodes_that_cannot_be_paired_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "nodes").write_text(text)
    with pytest.raises(RefusedError, match=message):
        measured.nodes(tmp_path / "nodes")


def test_a_hostfile_of_mpi_is_a_file_of_nodes(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("# p5\none slots=8\ntwo slots=8\n\n")
    assert measured.nodes(tmp_path / "nodes") == ("one", "two")


def test_a_node_that_is_not_in_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one twoo 12\n")
    with pytest.raises(RefusedError, match="did you mean two"):
        measured.read(tmp_path / "lines", ("one", "two"))


def test_the_answer_says_how_many_rounds() -> None:
    assert view.begin(named(512), 0).sentence.startswith("512 nodes: 1 round, 256 pairs")
    assert view.begin(named(4), 0).sentence == "4 nodes: 3 rounds, 6 pairs, those of a round at once"
