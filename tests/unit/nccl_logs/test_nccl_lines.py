"""Which lines of a log are looked into: what they say is found, however many are like them but for their numbers."""

from pathlib import Path

import pytest

from rdma_images.facts import facts_file
from rdma_images.facts.failures import Failures
from rdma_images.jobs.results import from_logs
from rdma_images.nccl_logs import line_filter, verdict
from rdma_images.nccl_logs.line_filter import FOREIGN, PROGRESS, QUIET, USUAL, Channels, LineClassifier

WORDINGS = verdict.load_wordings()
ROWS = (
    *WORDINGS.causes.values(),
    *WORDINGS.notes.values(),
    *WORDINGS.slow.values(),
)
FAILURES = facts_file.read(Failures).failures
RANK = "vm:1:1 [0] NCCL INFO "
CHANNEL = f"{RANK}Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA"


@pytest.mark.parametrize("wording", sorted({row.pattern for row in ROWS}))
def test_every_wording_begins_with_plain_text(wording: str) -> None:
    """Without it every line of a log would be looked into for this wording."""
    (shape,) = LineClassifier([row for row in ROWS if row.pattern == wording], ()).classify_lines(
        "NCCL WARN a line of something else"
    )
    assert shape is QUIET


@pytest.mark.parametrize("name", FAILURES)
def test_every_failure_begins_with_plain_text(name: str) -> None:
    (shape,) = LineClassifier((), (), [FAILURES[name]]).classify_lines("a line of something else")
    assert shape is FOREIGN


@pytest.mark.parametrize(
    ("wording", "line", "matches"),
    [
        ("one two", "one two", True),
        ("one 2a?", "one 2", True),
        ("one|two", "two", True),
        (r"one \(|two", "two", True),
        (r"one (two|three)", "one four", True),
        (r"one (two|three)", "three", False),
        ("[Oo]ne", "anything", True),
    ],
)
def test_a_line_that_may_have_a_wording_is_never_missed(wording: str, line: str, matches: bool) -> None:
    row = ROWS[0].model_copy(update={"pattern": wording, "anywhere": True})
    (shape,) = LineClassifier([row], ()).classify_lines(line)
    assert (shape.wordings == (row,)) is matches


def test_a_wording_of_nccl_is_looked_for_in_its_lines_alone() -> None:
    row = ROWS[0].model_copy(update={"pattern": "one", "anywhere": False})
    foreign, ours = LineClassifier([row], ()).classify_lines("one\nNCCL WARN one")
    assert (foreign.wordings, ours.wordings) == ((), (row,))


def test_lines_are_sorted_by_what_they_can_mean() -> None:
    lines = [
        "step 12 loss 0.3",
        f"{RANK}opCount 1f sendbuff 0x7fab",
        CHANNEL,
        f"{RANK}Channel 00/16 : 0 1 2 3",
        f"{RANK}NCCL_ALGO set by environment to Ring",
        '{"log": "x"}',
        "\x07bell",
    ]
    shapes = LineClassifier(ROWS, ()).classify_lines("\n".join(lines))
    assert shapes[:4] == [PROGRESS, QUIET, USUAL, QUIET]
    assert [row.why for row in shapes[4].wordings] == [WORDINGS.slow["algorithm"].why]
    assert all(shape.matters and shape.is_raw for shape in shapes[5:])


def test_of_lines_alike_the_one_that_means_something_is_read(tmp_path: Path) -> None:
    """Lines that differ in a number alone have one shape, and not one meaning."""
    alike = [f"{RANK}NCCL_P2P_DISABLE set by environment to {n}" for n in (0, 0, 1)]
    (tmp_path / "0.log").write_text("\n".join([*alike, CHANNEL, ""]))
    (run,) = from_logs.read_logs([tmp_path]).runs
    assert run.slow == {WORDINGS.slow["p2p"].why: ("0.log:3",)}


def test_more_shapes_than_are_remembered_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_filter, "MAX_SHAPES", 2)
    classifier = LineClassifier(ROWS, ())
    lines = ["u v", CHANNEL, f"{RANK}x", "y" * 5000, "z"]
    assert [classifier.classify_lines("\n".join(lines)) for _ in range(2)] == [
        [FOREIGN, USUAL, QUIET, FOREIGN, FOREIGN]
    ] * 2
    assert len(classifier) <= 2


@pytest.mark.parametrize(
    ("line", "is_taken"),
    [
        (CHANNEL, True),
        (f"2026-11-22T06:00:00.1Z {CHANNEL}", True),
        (f"{RANK}Channel 03 : 0[1b000] -> 1[1c000] via P2P/IPC/read", True),
        (f"{CHANNEL} {CHANNEL}", False),
        (CHANNEL[:-3], False),
        (f"{RANK}Channel 03 : 0[1b000] -> 1[1c000] via something", False),
    ],
)
def test_a_channel_is_counted_only_where_it_fills_its_line(line: str, is_taken: bool) -> None:
    channels = Channels()
    assert [channels.count(n, line) for n in range(3)] == [is_taken] * 3
    counted = [*channels.network.values(), *channels.node.values()]
    assert [channel.times for channel in counted] == [3] * is_taken


def test_lines_with_times_are_of_one_process() -> None:
    channels = Channels()
    assert all(channels.count(n, f"2026-11-22T06:00:0{n}Z {CHANNEL}") for n in range(9))
    assert [channel.times for channel in channels.network.values()] == [9]


def test_colours_of_a_launcher_hide_nothing(tmp_path: Path) -> None:
    lines = [CHANNEL, f"{RANK}NCCL_ALGO set by environment to Ring", f"{RANK}comm 0x1 rank 0 nranks 16"]
    (tmp_path / "0.log").write_text("".join(f"\x1b[36m(head, rank=0)\x1b[0m {line}\n" for line in lines))
    (run,) = from_logs.read_logs([tmp_path]).runs
    assert run.channels == {"NET/Libfabric/GDRDMA": 1}
    assert "NCCL_ALGO=Ring leaves NCCL no choice of the algorithm" in run.slow
    assert [node.ranks for node in run.nodes] == [(0,)]


def test_a_log_that_is_cut_in_a_channel_does_not_deny_gpudirect(tmp_path: Path) -> None:
    """Wherever a log of limited size ends, its last line says nothing about GPUDirect."""
    path = tmp_path / "0.log"
    for length in range(CHANNEL.index("NET/"), len(CHANNEL)):
        path.write_text(f"{RANK}comm 0x1 rank 0 nranks 16\n{CHANNEL}\n{CHANNEL[:length]}")
        (run,) = from_logs.read_logs([path]).runs
        assert [node.gpudirect.value for node in run.nodes if node.gpudirect] == ["yes"]
        assert {name for name in run.channels if "GDRDMA" not in name} == set()
        assert dict(verdict.verdict(path).channels) == dict(run.channels)


def test_the_last_channel_counts_where_no_other_says_gpudirect(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text(CHANNEL.removesuffix("/GDRDMA"))
    assert verdict.verdict(path).channels == {"NET/Libfabric": 1}
