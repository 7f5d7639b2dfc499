"""What a job's logs say while they grow: the verdict, and what its preflight finds."""

from pathlib import Path

import pytest

from rdma_images.facts.nccl_logs import load_log_patterns
from rdma_images.jobs.results.log_files import GrowingFolder, LineBuffer
from rdma_images.jobs.results.run_results import judge_log
from rdma_images.jobs.run import watch
from rdma_images.jobs.run.watch import LogWatch
from rdma_images.nccl_logs.reader import LogReader
from rdma_images.nccl_logs.verdict import judge_summary

LOGS = Path(__file__).parents[2] / "data" / "nccl-logs"
PREFLIGHT = LOGS.parent / "preflight"
STOPPED = "node:1:1 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129"


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.log")), ids=lambda log: log.stem)
def test_a_log_in_small_pieces_has_the_verdict_of_the_whole(log: Path) -> None:
    patterns = load_log_patterns()
    reader, buffer = LogReader(patterns), LineBuffer()
    for line in log.read_text().splitlines(keepends=True):
        for piece in (line[:7], line[7:]):
            reader.read(buffer.complete_lines(piece))
    reader.read(buffer.pending_line())
    assert judge_summary(reader.summary(), patterns) == judge_log(log)


def test_the_verdict_is_said_once_and_a_fatal_line_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "GRACE_SECONDS", 0)
    messages: list[str] = []
    logs = LogWatch(tmp_path, messages.append)
    with (tmp_path / "0.log").open("w") as file:
        for text, said in (((LOGS / "net-socket.log").read_text(), 1), ("more\n", 1), (f"{STOPPED}\n", 2)):
            file.write(text)
            file.flush()
            logs.look()
            assert len(messages) == said
    assert "fallback: the channels use TCP sockets" in messages[0]
    assert logs.look()


def test_logs_that_appear_later_are_read(tmp_path: Path) -> None:
    folder = GrowingFolder(tmp_path)
    assert folder.new_lines() == {}
    (tmp_path / "job").mkdir()
    log = tmp_path / "job" / "a.log"
    log.write_text("one\ntw")
    assert folder.new_lines() == {log: "one\n"}
    with log.open("a") as file:
        file.write("o\n")
    assert folder.new_lines() == {log: "two\n"}


def test_a_node_that_only_misses_its_neighbour_is_bad_and_not_to_be_excluded(tmp_path: Path) -> None:
    logs = LogWatch(tmp_path, lambda _: None)
    (tmp_path / "a.log").write_text(
        "0: rdma-preflight n0 error neighbour: n1 is not reached\n"
        "1: rdma-preflight n1 error neighbour: n2 is not reached\n"
        "1: rdma-preflight n1 error memlock: only 64 KiB of memory can be locked\n"
    )
    logs.look()
    assert logs.check_failure == "node n0: neighbour: n1 is not reached; node n1: neighbour: n2 is not reached"
    assert logs.nodes_to_exclude(2) == "n1"


@pytest.mark.parametrize(("nodes", "names"), [(1, "n0"), (2, ""), (3, "n0,n1")])
def test_no_node_is_to_be_excluded_where_all_of_several_fail(tmp_path: Path, nodes: int, names: str) -> None:
    logs = LogWatch(tmp_path, lambda _: None)
    finding = "error gids: NCCL_IB_GID_INDEX=3, and mlx5_0 has no such GID\n"
    checks = [f"{number}: rdma-preflight n{number} {finding}" for number in range(min(nodes, 2))]
    (tmp_path / "a.log").write_text("".join(checks))
    logs.look()
    assert logs.nodes_to_exclude(nodes) == names


def test_a_failed_all_reduce_ends_the_job_and_excludes_no_node(tmp_path: Path) -> None:
    messages: list[str] = []
    logs = LogWatch(tmp_path, messages.append)
    note = "all-reduce: 2 GPUs of 2 nodes over NET/Socket: 256 MiB at 2.7 GB/s"
    error = "all-reduce: NCCL sends between the nodes over TCP sockets, and not over efa"
    (tmp_path / "a.log").write_text(
        f"0: rdma-preflight n0 note {note}\n0: rdma-preflight n0 error {error}\n1: rdma-preflight n1 error {error}\n"
    )
    logs.look()
    assert logs.check_failure == f"node n0: {error}; node n1: {error}"
    assert logs.nodes_to_exclude(2) == ""
    sentences = [message.split(" ", 1)[1] for message in messages]
    assert sentences[:3] == [f"note: n0: {note}", f"error: n0: {error}", f"error: n1: {error}"]
    assert "the preflight of n0 ended the job: all-reduce: NCCL sends" in sentences[3]


@pytest.mark.parametrize("node", [0, 1])
def test_why_the_preflight_ended_a_job_on_gpus_is_said(tmp_path: Path, node: int) -> None:
    logs = LogWatch(tmp_path, lambda _: None)
    for name in ("good", "ended"):
        (tmp_path / f"{name}.log").write_text((PREFLIGHT / f"{name}-{node}.log").read_text())
        logs.look()
        assert bool(logs.check_failure) == (name == "ended")
    reason = "efa is required: the channels use libfabric over tcp, not EFA (4 NET/Libfabric)"
    assert logs.check_failure == f"node node{node}: network: the command was ended, since {reason}"
