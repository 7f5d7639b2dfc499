"""The all-reduce: processes that call libraries in place of CUDA's driver and NCCL."""

import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from rdma_images.facts.nccl_logs import load_log_patterns
from rdma_images.preflight import all_reduce
from rdma_images.preflight.job_nodes import JobNode
from rdma_images.preflight.system import Finding, NcclLibrary
from tests.support import fake_nccl

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="the libraries are compiled")
LOGS = Path(__file__).parents[2] / "data" / "nccl-logs"


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> NcclLibrary:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nccl.folder()))
    monkeypatch.setattr(all_reduce, "MESSAGE_BYTES", 1 << 16)
    monkeypatch.setattr(all_reduce, "GRACE_SECONDS", 0.5)
    return NcclLibrary(str(fake_nccl.folder() / "libnccl.so.2"), (2, 28, 9))


def findings(
    tmp_path: Path, nccl: NcclLibrary, nodes: int = 1, gpus: int = 2, required: str = "", limit: float = 60.0
) -> list[list[Finding]]:
    """Return the findings of each node; one after the other starts, and all run at once."""
    results: list[list[Finding]] = [[] for _ in range(nodes)]
    ranks = []
    for number in range(nodes):
        folder = tmp_path / f"node{number}"
        folder.mkdir()
        ranks.append(all_reduce.Ranks((nodes, number), gpus, nccl.path, str(folder), os.environ))
    unique_id = ranks[0].make_id()

    def run(number: int) -> None:
        with ranks[number] as processes:
            answers = processes.run(unique_id, limit)
            node = JobNode(nodes, number, "n0")
            results[number] += all_reduce.check_answers(processes, answers, node, [], required, load_log_patterns())

    threads = [threading.Thread(target=run, args=[number]) for number in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_the_gpus_of_one_node(tmp_path: Path, libraries: NcclLibrary) -> None:
    (((severity, subject, sentence),),) = findings(tmp_path, libraries)
    assert (severity, subject) == ("note", "all-reduce")
    assert sentence.startswith("2 GPUs of 1 node(s): 0 MiB at ")
    assert sentence.endswith("all are inside one node (2 P2P/CUMEM)")


@pytest.mark.parametrize(
    ("required", "severities"), [("", ["note"]), ("efa", ["error", "note"]), ("any", ["error", "note"])]
)
def test_tcp_between_nodes(
    tmp_path: Path, libraries: NcclLibrary, required: str, severities: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NETWORK", "Socket")
    first, second = findings(tmp_path, libraries, nodes=2, gpus=1, required=required)
    assert [row[0] for row in first] == severities
    assert [row[0] for row in second] == severities[:-1]
    assert all(row[2].startswith(f"{required} is required: the channels use TCP") for row in second)


def test_efa_between_nodes(tmp_path: Path, libraries: NcclLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NETWORK", "Libfabric")
    (((severity, _, sentence),), second) = findings(tmp_path, libraries, nodes=2, gpus=1, required="efa")
    assert (severity, second) == ("note", [])
    assert "the channels use EFA" in sentence


def test_a_rank_that_fails_ends_the_wait_and_is_quoted(
    tmp_path: Path, libraries: NcclLibrary, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "1")
    (((severity, _, sentence),),) = findings(tmp_path, libraries)
    assert severity == "error"
    assert sentence.startswith("rank 1 of 2: ncclCommInitRank: unhandled system error; ")
    assert "NCCL WARN socketProgressOpt: Call to recv from 10.0.0.9 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("FAKE_CUDA", "802", "CUDA's cuInit ended with error 802, system not yet initialized: as when nvidia"),
        ("FAKE_WAITS", "60", "rank 1 of 2: not done after 1 s; "),
        ("FAKE_NO_ID", "1", "rank 1 of 2: rank 0 made no communicator: see the lines of the first node"),
        ("FAKE_KILLED", "1", "rank 1 of 2: signal 9 ended it: the limit of the container's memory may be reached; "),
    ],
)
def test_a_rank_of_the_second_node_that_fails(
    tmp_path: Path, libraries: NcclLibrary, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    limit = 1.0 if variable == "FAKE_WAITS" else 60.0
    _, ((severity, _, sentence),) = findings(tmp_path, libraries, nodes=2, gpus=1, limit=limit)
    assert severity == "error"
    assert words in sentence


def test_a_rank_reads_the_sum_with_little_memory_beside_its_gpus(
    tmp_path: Path, libraries: NcclLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a pod may have beside its command is small; the library here has the GPU's 256 MiB in it, too."""
    monkeypatch.setattr(all_reduce, "MESSAGE_BYTES", 256 << 20)
    (tmp_path / "python").write_text(f'#!/bin/sh\nulimit -v {500 << 10}\nexec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (((severity, _, sentence),),) = findings(tmp_path, libraries, gpus=1)
    assert severity == "note", sentence


def test_no_driver_of_cuda(tmp_path: Path, libraries: NcclLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    if Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists():
        pytest.skip("this machine has one")
    (((_, _, sentence),),) = findings(tmp_path, libraries)
    assert "libcuda.so.1" in sentence
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in sentence
