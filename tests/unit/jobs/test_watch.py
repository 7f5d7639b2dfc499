"""`invoke verdict --follow`: the verdict on a job that runs, from real logs that grow."""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.facts.nccl_logs import load_wordings
from rdma_images.jobs.results.log_files import GrowingFolder
from rdma_images.jobs.results.logs import judge_log
from rdma_images.jobs.run import follow, watch
from rdma_images.nccl_logs.live import LiveVerdict

LOGS = Path(__file__).parents[2] / "data" / "nccl-logs"
STOPPED = "node:1:1 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129"


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.log")), ids=lambda log: log.stem)
def test_a_log_in_small_pieces_has_the_verdict_of_the_whole(log: Path) -> None:
    fed = LiveVerdict(load_wordings())
    for line in log.read_text().splitlines(keepends=True):
        fed.feed(line[:7])
        fed.feed(line[7:])
    assert fed.verdict == judge_log(log)


def test_the_verdict_is_said_while_the_job_runs() -> None:
    """The writer prints a real log, and ends only after the verdict was said."""
    said: list[str] = []
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin
        assert writer.stdout

        def say(line: str) -> None:
            said.append(line)
            if "fallback: the channels use TCP sockets" in line and writer.stdin:
                writer.stdin.close()

        writer.stdin.write((LOGS / "net-socket.log").read_text())
        writer.stdin.flush()
        answer = watch.watch_log(Path(f"/dev/fd/{writer.stdout.fileno()}"), 60, say)
    assert answer == judge_log(LOGS / "net-socket.log")
    assert len(said) == 1


@contextmanager
def growing(path: Path, lines: list[str]) -> Iterator[None]:
    def write() -> None:
        with path.open("a") as file:
            for line in lines:
                time.sleep(0.05)
                file.write(line)
                file.flush()

    path.touch()
    writer = threading.Thread(target=write)
    writer.start()
    yield
    writer.join()


def test_a_file_that_grows_is_followed_to_the_line_that_stops_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "GRACE_SECONDS", 0.2)
    with growing(tmp_path / "log", ["node:1:1 [0] NCCL INFO NCCL ver", "sion 2.28.9+cuda13.0\n", f"{STOPPED}\n"]):
        answer = watch.watch_log(tmp_path / "log", 60, lambda _: None)
    assert (answer.nccl, answer.exit_code) == ("2.28.9", 1)


def test_a_file_is_watched_for_a_time() -> None:
    assert watch.watch_log(LOGS / "p2p-default.log", 1, lambda _: None) == judge_log(LOGS / "p2p-default.log")


def test_a_pipe_ends_with_its_writer() -> None:
    with subprocess.Popen(["cat", LOGS / "net-socket.log"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        answer = watch.watch_log(Path(f"/dev/fd/{writer.stdout.fileno()}"), 60, lambda _: None)
    assert answer == judge_log(LOGS / "net-socket.log")


def test_what_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(RdmaImagesError, match="neither a file nor a pipe"):
        watch.watch_log(tmp_path, 1, lambda _: None)
    with pytest.raises(RdmaImagesError, match="no such log"):
        watch.watch_log(tmp_path / "none", 1, lambda _: None)


def test_logs_that_appear_later_are_read(tmp_path: Path) -> None:
    folder = GrowingFolder(tmp_path)
    assert folder.new_lines() == ""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "a.log").write_text("one\ntw")
    assert folder.new_lines() == "one\n"
    with (tmp_path / "job" / "a.log").open("a") as file:
        file.write("o\n")
    assert folder.new_lines() == "two\n"


def test_a_node_that_only_misses_its_neighbour_is_bad_and_not_to_be_excluded(tmp_path: Path) -> None:
    logs = follow.LogWatch(tmp_path, lambda _: None, ends=True, nodes=2)
    (tmp_path / "a.log").write_text(
        "0: rdma-preflight n0 error neighbour: n1 is not reached\n"
        "1: rdma-preflight n1 error neighbour: n2 is not reached\n"
        "1: rdma-preflight n1 error memlock: locked memory is limited\n"
    )
    logs.judge_new_lines()
    assert logs.check_failure == "node n0: neighbour: n1 is not reached; node n1: neighbour: n2 is not reached"
    assert logs.bad_node_names == "n1"


@pytest.mark.parametrize(("nodes", "names"), [(1, "n0"), (2, ""), (3, "n0,n1")])
def test_no_node_is_to_be_excluded_where_all_of_several_fail(tmp_path: Path, nodes: int, names: str) -> None:
    logs = follow.LogWatch(tmp_path, lambda _: None, ends=True, nodes=nodes)
    finding = "error gids: NCCL_IB_GID_INDEX=3, and mlx5_0 has no such GID\n"
    checks = [f"{number}: rdma-preflight n{number} {finding}" for number in range(min(nodes, 2))]
    (tmp_path / "a.log").write_text("".join(checks))
    logs.judge_new_lines()
    assert logs.bad_node_names == names


def test_a_failed_all_reduce_ends_the_job_and_excludes_no_node(tmp_path: Path) -> None:
    messages: list[str] = []
    logs = follow.LogWatch(tmp_path, messages.append, ends=True, nodes=2)
    note = "all-reduce: 2 GPUs of 2 nodes over NET/Socket: 256 MiB at 2.7 GB/s"
    error = "all-reduce: NCCL sends between the nodes over TCP sockets, and not over efa"
    (tmp_path / "a.log").write_text(
        f"0: rdma-preflight n0 note {note}\n0: rdma-preflight n0 error {error}\n1: rdma-preflight n1 error {error}\n"
    )
    logs.judge_new_lines()
    assert logs.check_failure == f"node n0: {error}; node n1: {error}"
    assert logs.bad_node_names == ""
    sentences = [message.split(" ", 1)[1] for message in messages]
    assert sentences[:3] == [f"note: n0: {note}", f"error: n0: {error}", f"error: n1: {error}"]
    assert "the preflight of n0 ended the job: all-reduce: NCCL sends" in sentences[3]
