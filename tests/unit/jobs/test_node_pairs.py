"""Slow nodes and links are found from noisy pairs, in as few rounds as the plan says."""

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.jobs import node_pairs
from rdma_images.jobs.node_pairs import Inference, Pair
from tests.support.results_parts import P5, write

SIZES = (4, 5, 6, 7, 8, 9, 12, 31, 64, 255, 512)


def named(count: int) -> list[str]:
    return [f"node-{n:03}" for n in range(count)]


def diagnose(
    nodes: Sequence[str],
    slow: Mapping[str, float],
    links: Mapping[Pair, float],
    seed: int,
    lost: Sequence[Pair] = (),
) -> tuple[Inference, int]:
    """Return what the plan finds on 400 GB/s with 3% of noise, and in how many rounds; `lost` leave no log at first."""
    chance = random.Random(seed)
    missing = set(lost)
    timings: dict[Pair, float] = {}
    rounds = 0

    def measure(pairs: Sequence[Pair]) -> None:
        for first, second in (pair for pair in pairs if pair not in missing):
            share = min(slow.get(first, 1.0), slow.get(second, 1.0), links.get((first, second), 1.0))
            timings[first, second] = 400 * share * chance.gauss(1, 0.03)
        missing.difference_update(pairs)

    for pairs in node_pairs.first_rounds(nodes):
        measure(pairs)
        rounds += 1
    while pairs := node_pairs.next_round(nodes, timings):
        measure(pairs)
        rounds += 1
    return node_pairs.infer(nodes, timings), rounds


@pytest.mark.parametrize("count", SIZES)
def test_each_round_has_disjoint_pairs_and_none_is_repeated(count: int) -> None:
    nodes = named(count)
    rounds = node_pairs.first_rounds(nodes, count)
    assert all(len({node for pair in pairs for node in pair}) == 2 * len(pairs) for pairs in rounds)
    pairs = [pair for round in rounds for pair in round]
    assert sorted(pairs) == sorted(combinations(nodes, 2))


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("bad", [0, 1, 2, 3])
def test_slow_nodes_are_named_and_no_others(count: int, bad: int) -> None:
    if bad > count - 2:
        bad = count - 2  # without two good nodes no pair is good
    for seed in range(12 if count < 100 else 3):
        nodes = named(count)
        slow = {node: random.Random(seed).uniform(0.2, 0.7) for node in random.Random(seed).sample(nodes, bad)}
        result, rounds = diagnose(nodes, slow, {}, seed)
        assert set(result.slow) == set(slow), seed
        assert (result.links, result.suspects, result.unmeasured) == ((), (), ())
        most = count - 1 + count % 2 if count < node_pairs.FEW else (2 if count > 12 else 4) + count % 2
        assert rounds <= most


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("bad", [1, 2])
def test_slow_links_are_distinguished_from_slow_nodes(count: int, bad: int) -> None:
    nodes = named(count)
    for seed in range(6):
        links = dict.fromkeys(random.Random(seed).sample(node_pairs.first_rounds(nodes)[0], bad), 0.5)
        result, _ = diagnose(nodes, {}, links, seed)
        assert set(result.links) == set(links), seed
        assert result.slow == ()


def test_a_slow_node_and_a_slow_link_at_once() -> None:
    nodes = named(64)
    (first, second, *_) = node_pairs.first_rounds(nodes)[0]
    result, rounds = diagnose(nodes, {first[0]: 0.5}, {second: 0.6}, 1)
    assert (result.slow, result.links, rounds) == ((first[0],), (second,), 2)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_nodes_whose_pair_left_no_log_are_tried_again_with_good_ones(count: int, bad: int) -> None:
    nodes = named(count)
    for seed in range(6):
        chance = random.Random(seed)
        rounds = node_pairs.first_rounds(nodes)
        slow = {node: chance.uniform(0.2, 0.7) for node in chance.sample(nodes, min(bad, count - 3))}
        # One good pair has its log: without any there is nothing to compare with.
        remaining = next(pair for pairs in rounds for pair in pairs if not slow.keys() & set(pair))
        lost = [pair for pairs in rounds for pair in pairs if pair != remaining and chance.random() < 0.4]
        result, _ = diagnose(nodes, slow, {}, seed, lost)
        assert (set(result.slow), result.suspects, result.unmeasured) == (set(slow), (), ()), seed


def test_a_lost_log_takes_one_more_round() -> None:
    nodes = named(64)
    (lost, other, *_) = node_pairs.first_rounds(nodes)[0]
    timings = dict.fromkeys(node_pairs.first_rounds(nodes)[0], 400.0)
    del timings[lost]
    again = node_pairs.next_round(nodes, timings)
    assert [len(set(pair) & set(lost)) for pair in again] == [1, 1]
    assert len({node for pair in again for node in pair}) == 4
    answer = node_pairs.next_report(nodes, timings, 0.0)
    assert answer.sentence == f"no log has {lost[0]}, {lost[1]}: 1 more round at least"
    result, rounds = diagnose(nodes, {other[0]: 0.5}, {}, 1, [lost])
    assert (result.slow, result.unmeasured, rounds) == ((other[0],), (), 2)


def test_where_no_pair_left_a_log_all_are_measured_again() -> None:
    nodes = named(8)
    assert node_pairs.next_round(nodes, {}) == node_pairs.first_rounds(nodes)[0]
    first, *others = node_pairs.first_rounds(nodes)[0]
    again = node_pairs.next_round(nodes, {first: 0.0})
    assert sorted(node for pair in again for node in pair) == sorted(node for pair in others for node in pair)


def test_a_node_that_rests_in_the_only_round_is_measured_next() -> None:
    nodes = named(9)
    timings = dict.fromkeys(node_pairs.first_rounds(nodes, 1)[0], 400.0)
    (pair,) = node_pairs.next_round(nodes, timings)
    assert set(pair) & set(node_pairs.infer(nodes, timings).unmeasured)


def test_where_every_pair_is_alike_only_an_expectation_tells_that_all_are_slow() -> None:
    nodes = named(8)
    timings = dict.fromkeys(node_pairs.first_rounds(nodes)[0], 20.0)
    assert node_pairs.infer(nodes, timings).suspects == ()
    assert node_pairs.infer(nodes, timings, 77.0).suspects == tuple(nodes)
    assert "no good node" in node_pairs.next_report(nodes, timings, 77.0).sentence


def test_a_pair_whose_job_failed_is_slow() -> None:
    nodes = named(8)
    timings = dict.fromkeys(node_pairs.first_rounds(nodes)[0], 400.0)
    timings[next(iter(timings))] = 0.0
    assert len(node_pairs.next_round(nodes, timings)) == 2


def test_pairs_are_read_from_a_folder_of_runs_and_from_lines(tmp_path: Path) -> None:
    write(tmp_path / "pairs" / "a--b" / "logs")
    write(tmp_path / "pairs" / "d--c", rows=P5[:2])
    (tmp_path / "pairs" / "a--c").mkdir()
    nodes = ("a", "b", "c", "d")
    assert node_pairs.read_pairs(tmp_path / "pairs", nodes) == {("a", "b"): 487.09, ("c", "d"): 436.95, ("a", "c"): 0.0}
    (tmp_path / "lines").write_text("# pair GB/s\nb a 12.5\nc d 400\n")
    assert node_pairs.read_pairs(tmp_path / "lines", nodes) == {("a", "b"): 12.5, ("c", "d"): 400.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [("a\na\n", "twice"), ("a\n", "1 nodes"), ("a\nb;rm\n", "no name"), ("", "0 nodes")],
)
def test_a_file_of_nodes_that_cannot_be_paired_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "nodes").write_text(text)
    with pytest.raises(RefusedError, match=message):
        node_pairs.read_nodes(tmp_path / "nodes")


def test_a_hostfile_of_mpi_is_a_file_of_nodes(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("# p5\none slots=8\ntwo slots=8\n\n")
    assert node_pairs.read_nodes(tmp_path / "nodes") == ("one", "two")


def test_a_node_that_is_not_in_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one twoo 12\n")
    with pytest.raises(RefusedError, match="did you mean two"):
        node_pairs.read_pairs(tmp_path / "lines", ("one", "two"))


def test_the_answer_says_how_many_rounds() -> None:
    assert node_pairs.first_report(named(512), 0).sentence.startswith("512 nodes: 1 round, 256 pairs")
    assert node_pairs.first_report(named(4), 0).sentence == "4 nodes: 3 rounds, 6 pairs, those of a round at once"
