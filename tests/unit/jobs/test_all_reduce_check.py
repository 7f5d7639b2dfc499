"""The all-reduce before a job's command: what it says of NCCL's logs and of processes. Its NCCL needs two GPUs."""

import argparse
import glob
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import pytest

from rdma_images.jobs.node import all_reduce_check, all_reduce_failure, all_reduce_ranks

LOGS = Path(__file__).parents[2] / "data" / "nccl-logs"
PREFLIGHT_LOGS = Path(__file__).parents[2] / "data" / "preflight-logs"
OPTIONS = argparse.Namespace(fabric="efa", adapters=0, gpus=1, nodes=2, rank=0, master="n0", root="/none")


def write_result(folder: Path, log: str, bus_bandwidth: float = 40.0, is_right: bool = True) -> None:
    """Write what a rank leaves that ended well."""
    result = {"start_seconds": 1.0, "bus_bandwidth": bus_bandwidth, "is_right": is_right}
    (folder / "result.0").write_text(json.dumps(result))
    (folder / "nccl.0.log").write_text(log)


def write_port(root: Path, number: int, state: str) -> None:
    """Write the port of an adapter of 400 Gb/s as the kernel shows it."""
    folder = root / f"sys/class/infiniband/mlx5_{number}/ports/1"
    folder.mkdir(parents=True)
    (folder / "state").write_text(state)
    (folder / "rate").write_text("400 Gb/sec (4X NDR)")


def findings(folder: Path, **changes: object) -> list[str]:
    options = argparse.Namespace(**{**vars(OPTIONS), **changes})
    return [f"{severity} {sentence}" for severity, _, sentence in all_reduce_check.check_result(options, str(folder))]


def test_sockets_between_nodes_are_an_error_where_a_fabric_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = (LOGS / "net-socket.log").read_text()
    write_result(tmp_path, log)
    error, note = findings(tmp_path)
    assert error == "error NCCL sends between the nodes over TCP sockets, and not over efa"
    assert note.startswith("note 2 GPUs of 2 nodes over NET/Socket: 256 MiB at 40.0 GB/s bus bandwidth")
    assert "via NET/Socket" in capsys.readouterr().out
    assert len(findings(tmp_path, fabric="")) == 1
    assert len(findings(tmp_path, rank=1)) == 1


def test_sockets_beside_adapters_are_a_warning_where_no_fabric_is_asked_for(tmp_path: Path) -> None:
    write_port(tmp_path, 0, "4: ACTIVE")
    write_result(tmp_path, (LOGS / "net-socket.log").read_text())
    assert findings(tmp_path, fabric="", root=str(tmp_path))[0] == (
        "warning NCCL sends between the nodes over TCP sockets, and not over this node's RDMA adapters"
    )


def test_a_network_within_a_node_is_a_warning(tmp_path: Path) -> None:
    write_result(tmp_path, (LOGS / "net-socket.log").read_text())
    assert findings(tmp_path, gpus=2, nodes=1)[0] == (
        "warning the GPUs of this node reach each other over NET/Socket, and not over NVLink, PCIe or shared memory"
    )


def test_settings_that_keep_gpus_from_a_faster_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in NVIDIA/nccl issues 406 and 631."""
    for name in all_reduce_check.WAY_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    write_result(tmp_path, "n0:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n")
    result = json.loads((tmp_path / "result.0").read_text())
    (tmp_path / "result.0").write_text(json.dumps({**result, "can_reach_peer": True}))
    assert len(findings(tmp_path, gpus=2, nodes=1)) == 1
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    assert findings(tmp_path, gpus=2, nodes=1)[0] == (
        "warning the GPUs of this node could reach each other directly, and send through the host's memory: "
        "by NCCL_P2P_DISABLE=1"
    )
    (tmp_path / "result.0").write_text(json.dumps({**result, "can_reach_peer": False}))
    assert len(findings(tmp_path, gpus=2, nodes=1)) == 1
    write_result(tmp_path, (LOGS / "net-socket.log").read_text())
    monkeypatch.setenv("NCCL_SHM_DISABLE", "1")
    assert findings(tmp_path, gpus=2, nodes=1)[0].endswith("memory: by NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1")


def test_a_setting_that_takes_the_choice_of_the_algorithm_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_result(tmp_path, "")
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    assert findings(tmp_path)[-1] == (
        "note NCCL_ALGO=Tree: NCCL does not choose the fastest way for the size of each message"
    )
    assert len(findings(tmp_path, rank=1)) == 0


def test_a_slow_network_between_nodes_without_adapters_is_a_warning(tmp_path: Path) -> None:
    """As in NVIDIA/nccl issue 766: 1 Gb/s."""
    write_result(tmp_path, (LOGS / "net-socket.log").read_text(), bus_bandwidth=0.1)
    warning, _ = findings(tmp_path, fabric="")
    assert warning.startswith("warning 256 MiB at 0.1 GB/s bus bandwidth over NET/Socket: GPUs will wait")
    write_result(tmp_path, (LOGS / "net-socket.log").read_text(), bus_bandwidth=1.0)
    assert len(findings(tmp_path, fabric="")) == 1


def test_another_provider_than_efa_is_an_error(tmp_path: Path) -> None:
    write_result(tmp_path, (LOGS / "gpu-two-nodes.log").read_text())
    assert findings(tmp_path)[0] == "error libfabric uses its provider tcp, and not efa"


def test_a_wrong_sum_is_an_error(tmp_path: Path) -> None:
    write_result(tmp_path, "", is_right=False)
    assert findings(tmp_path)[0] == "error the sum over all GPUs is wrong: an adapter, a link or a GPU changes data"


def test_a_bandwidth_far_below_the_adapters_is_a_warning(tmp_path: Path) -> None:
    line = "n0:1:1 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0%s\n"
    write_port(tmp_path, 0, "4: ACTIVE")
    write_port(tmp_path, 1, "1: DOWN")
    write_result(tmp_path, line % "", bus_bandwidth=6.0)
    assert findings(tmp_path, fabric="ib", root=str(tmp_path))[0] == (
        "warning 256 MiB at 6.0 GB/s bus bandwidth, where this node's adapters carry 50.0 GB/s, "
        "and no channel uses GPUDirect"
    )
    write_result(tmp_path, line % "/GDRDMA", bus_bandwidth=30.0)
    (note,) = findings(tmp_path, fabric="ib", root=str(tmp_path))
    assert "over NET/IB with GPUDirect" in note


def preflight_log_lines(name: str, beginning: str) -> list[str]:
    """Return the lines of a node's NCCL in the log of a performed report."""
    lines = (PREFLIGHT_LOGS / f"{name}.log").read_text().splitlines()
    return [line.partition(": ")[2] for line in lines if line.startswith(beginning)]


def start_python(code: str) -> int:
    return os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", code])


def test_the_first_that_fails_is_named_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_reduce_ranks, "GRACE_SECONDS", 0.5)
    begin = time.monotonic()
    processes = {
        start_python("import time; time.sleep(60)"): 0,
        start_python("import os; os.kill(os.getpid(), 11)"): 1,
        start_python(""): 2,
    }
    assert list(all_reduce_ranks.wait_for_ranks(processes, 30).items()) == [(1, "SIGSEGV"), (0, "")]
    assert time.monotonic() - begin < 20
    all_reduce_ranks.kill_process(next(iter(processes)))


def describe_failure(folder: Path, status: str, log: str = "", output: str = "") -> str:
    (folder / "nccl.0.log").write_text(log)
    (folder / "output.0").write_text(output)
    return all_reduce_failure.describe_failure(OPTIONS, str(folder), {0: status})


def test_a_failure_quotes_what_names_the_reason(tmp_path: Path) -> None:
    warning = "n0:1:1 [0] bootstrap.cc:114 NCCL WARN Bootstrap : no socket interface found\n"
    exception = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:93, invalid usage"
    output = f"{exception}\nLast error:\nBootstrap\n"
    assert describe_failure(tmp_path, "exit code 1", warning, output) == (
        "rank 0 of 2 failed: Bootstrap : no socket interface found"
    )
    assert describe_failure(tmp_path, "exit code 1", "", output) == f"rank 0 of 2 failed: {exception}"
    assert describe_failure(tmp_path, "SIGSEGV") == "rank 0 of 2 failed: SIGSEGV"


def test_a_rank_that_a_signal_ends_is_reported_with_the_last_line_of_nccl(tmp_path: Path) -> None:
    """As in NVIDIA/nccl issue 1091: the network plugin crashes as it starts."""
    log = "\n".join(preflight_log_lines("NVIDIA-nccl-1091", "node0: node0:"))
    assert describe_failure(tmp_path, "SIGSEGV", log) == (
        "rank 0 of 2 failed: SIGSEGV; the last line of its NCCL: "
        "Successfully loaded external network plugin /tmp/plugin/libnccl-net.so"
    )


def test_where_ranks_wait(tmp_path: Path) -> None:
    assert describe_failure(tmp_path, "").startswith(
        "not done after 92 s: rank 0 has not reached n0, port 29498: the name is not resolved here ("
    )
    (tmp_path / "connected.0").touch()
    assert describe_failure(tmp_path, "") == (
        "not done after 92 s: NCCL has not started, or not all 2 ranks have come to n0, port 29498"
    )
    (tmp_path / "missing-ranks").touch()
    assert (
        describe_failure(tmp_path, "") == "not done after 92 s: all 2 ranks have come to n0, and NCCL has not started"
    )
    (tmp_path / "missing-ranks").write_text("1")
    assert (
        describe_failure(tmp_path, "") == "not done after 92 s: not all 2 ranks have come to n0, port 29498, as rank 1"
    )
    line = preflight_log_lines("Blackwellboy-model-serving-minefield-45", "node0: node0:")[-1]
    assert describe_failure(tmp_path, "", line).startswith(
        "not done after 92 s: the last line of rank 0's NCCL: ncclCommInit"
    )
    (tmp_path / "remote-failure").write_text("rank 1 of 2 failed: out of memory")
    assert describe_failure(tmp_path, "", line) == "rank 1 of 2 failed: out of memory"


def test_a_lost_peer_is_no_reason_where_the_peer_has_one(tmp_path: Path) -> None:
    """As in NVIDIA/nccl issue 1739: one rank crashes, and the other loses it."""
    log = "n1:1:9 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer n0<42564>\n"
    assert describe_failure(tmp_path, "SIGABRT", log).startswith("rank 0 of 2 failed: socketProgress: Connection")
    (tmp_path / "remote-failure").write_text("rank 1 of 2 failed: CUDA error: misaligned address")
    assert describe_failure(tmp_path, "SIGABRT", log) == "rank 1 of 2 failed: CUDA error: misaligned address"


def test_an_exception_of_cpp_is_the_reason(tmp_path: Path) -> None:
    output = (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: "
        "CUDA error: misaligned address\n"
    )
    assert describe_failure(tmp_path, "SIGABRT", "n0:1:9 [0] NCCL INFO Connected all rings\n", output) == (
        "rank 0 of 2 failed: Process group watchdog thread terminated with exception: CUDA error: misaligned address"
    )


def test_a_collective_that_hangs_names_the_way(tmp_path: Path) -> None:
    """As in NVIDIA/nccl issues 120 and 182 and nccl-tests issue 115: the IOMMU breaks what GPUs send to each other."""
    (tmp_path / "connected.0").touch()
    direct = describe_failure(tmp_path, "", (LOGS / "p2p-default.log").read_text())
    assert re.fullmatch(r"not done after 92 s: rank 0 waits in the all-reduce, over P2P/\w+: try NCCL_P2P_.+", direct)
    sockets = describe_failure(tmp_path, "", (LOGS / "net-socket.log").read_text())
    assert sockets == "not done after 92 s: rank 0 waits in the all-reduce, over NET/Socket"
    # As in pytorch/pytorch issue 68893: NCCL's sockets take interfaces that do not lead to the other node.
    log = (LOGS / "net-socket.log").read_text()
    used = "[0]eth0:10.77.0.1<0> [1]veth75fa783:fe80::1%veth75fa783<0>"
    several = describe_failure(tmp_path, "", re.sub(r"(?<=NET/Socket : Using ).+", used, log))
    assert several.endswith(f"over NET/Socket on {used}: set NCCL_SOCKET_IFNAME to those that the nodes share")


@pytest.mark.parametrize("is_local", [True, False])
def test_an_address_that_a_rank_does_not_reach(tmp_path: Path, is_local: bool) -> None:
    """As in NVIDIA/nccl issue 697: the bridges of Docker have the same addresses on all nodes."""
    log = "\n".join(preflight_log_lines("NVIDIA-nccl-697", "node1: node1:"))
    log = log.replace("172.19.0.1", "127.0.0.1") if is_local else log
    (tmp_path / "connected.0").touch()
    assert describe_failure(tmp_path, "", log) == (
        "not done after 92 s: rank 0 does not reach 127.0.0.1 (Connection refused), an address of this node itself: "
        "set NCCL_SOCKET_IFNAME to the interface that the nodes share"
        if is_local
        else "not done after 92 s: rank 0 does not reach 172.19.0.1 (Connection refused)"
    )


def test_ranks_do_not_wait_for_one_of_another_node_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_reduce_ranks, "GRACE_SECONDS", 0.5)
    (tmp_path / "remote-failure").write_text("rank 1 of 2 failed: out of memory")
    begin = time.monotonic()
    processes = {start_python("import time; time.sleep(60)"): 0}
    assert all_reduce_ranks.wait_for_ranks(processes, 30, str(tmp_path)) == {0: ""}
    assert time.monotonic() - begin < 20
    all_reduce_ranks.kill_process(next(iter(processes)))


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU")
def test_a_node_without_a_gpu_runs_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert all_reduce_check.main(["--gpus=8", "--nodes=2"]) == 0
    assert capsys.readouterr().out == ""


def test_a_node_without_a_folder_to_write_to_runs_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(glob, "glob", lambda _: ["/dev/nvidia0", "/dev/nvidia1"])
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    assert all_reduce_check.main(["--gpus=2"]) == 0
    assert "warning all-reduce: not run: no temporary folder can be written: " in capsys.readouterr().out
