"""The verdict of a job: what went wrong in the field, one incident a test."""

import html
import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rdma_images.core.errors import RefusedError
from rdma_images.jobs.results import from_logs, result_table, run_files, tables
from rdma_images.jobs.results.expectations import Expectations, job_expectations
from rdma_images.jobs.results.result import Bandwidth, Measurement, RunResult
from tests.support import results_parts as parts
from tests.support.results_parts import NO_EXPECTATIONS, P5, TCP, TWO, LoggedNode, judged, sentences

RESULTS = Path(__file__).parents[2] / "data" / "results"
ERDMA = job_expectations(None, "ecs.ebmgn9gc.64xlarge", 2)


def verbs(name: str, devices: tuple[str, ...] = ("erdma_0", "erdma_1"), used: int = 2) -> LoggedNode:
    return LoggedNode(name, network="IB", devices=devices, used=used)


def test_a_job_that_is_as_it_should_be(tmp_path: Path) -> None:
    result = judged(tmp_path, tcp=TCP)
    assert sentences(result) == []
    assert result.exit_code == 0
    assert result.sentence.split("; ") == [
        "EFA on 32 adapters of each of 2 nodes",
        "GPUDirect RDMA",
        "all_reduce of 16 GiB at 487.1 GB/s, 122% of the line rate",
        "116.5 times TCP at 1 GiB",
    ]
    (first, second) = result.runs[0].nodes
    assert (first.name, first.ranks, second.ranks) == ("one", tuple(range(8)), tuple(range(8, 16)))
    assert first.adapters
    assert first.adapters.where == "logs/0.log:4"
    assert (tmp_path / "logs/0.log").read_text().split("\n")[3].endswith("(found 32 nics)")


def test_the_logs_over_tcp_are_mentioned_where_they_measured_nothing(tmp_path: Path) -> None:
    result = judged(tmp_path, tcp=TCP)
    console = Console(file=StringIO(), width=200)
    console.print(
        result_table.result_table(replace(result, runs=tuple(replace(run, measurements=()) for run in result.runs)))
    )
    assert isinstance(console.file, StringIO)
    assert f"over TCP: {result.runs[1].sentence}" in console.file.getvalue()


def test_a_job_json_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# job\n")
    with pytest.raises(RefusedError, match=r"README\.md: this file cannot be read: .*\nname the job\.json that"):
        from_logs.read_job_result([tmp_path / "0.log"], job=tmp_path / "README.md")


def test_one_of_four_adapters_is_reported(tmp_path: Path) -> None:
    """github.com/skypilot-org/skypilot/issues/8391: 20 GB/s on two p4d, and every line of the test was OK."""
    result = judged(
        tmp_path, [replace(node, adapters=1) for node in TWO], against=job_expectations(None, "p4d.24xlarge", 2)
    )
    assert result.exit_code == 1
    assert result.sentence == "every node: only 1 of the 4 adapters of p4d.24xlarge"
    assert "vpc.amazonaws.com/efa: 4" in result.runs[0].problems[0].fix


def test_one_node_of_many_with_fewer_adapters_is_named(tmp_path: Path) -> None:
    nodes = [LoggedNode("one"), replace(LoggedNode("two"), adapters=31)]
    assert sentences(judged(tmp_path, nodes)) == ["two: only 31 of the 32 adapters of p5.48xlarge"]


def test_sockets_in_silence(tmp_path: Path) -> None:
    """github.com/NVIDIA/aicr/issues/2275, skypilot #10055: pods without EFA, and the job ended well."""
    result = judged(tmp_path, TCP)
    assert result.exit_code == 1
    assert result.sentence.startswith("the channels use TCP sockets")


def test_one_node_on_sockets_among_others(tmp_path: Path) -> None:
    result = judged(tmp_path, [LoggedNode("one"), TCP[1]])
    assert result.exit_code == 1
    assert result.runs[0].nodes[1].adapters is None


def test_ranks_that_nobody_heard_of_leave_it_open(tmp_path: Path) -> None:
    logs = parts.write(tmp_path)
    result = from_logs.job_result(logs[:13], None, (), tmp_path, parts.P5_TWO)
    assert result.exit_code == 3
    assert sentences(result) == ["3 of 16 ranks have no line in the logs: 13, 14, 15"]


def test_fewer_nodes_than_were_asked_for(tmp_path: Path) -> None:
    result = judged(tmp_path, [LoggedNode("one", gpus=16)])
    assert "1 node, not the 2 asked for: one" in sentences(result)
    assert result.exit_code == 1


def test_processes_that_each_measured_alone(tmp_path: Path) -> None:
    """github.com/NVIDIA/nccl-tests/issues/182: without MPI=1 every node has a rank 0."""
    logs = parts.write(tmp_path / "a", [LoggedNode("one")]) + parts.write(tmp_path / "b", [LoggedNode("two")])
    result = sentences(from_logs.job_result(logs, None, (), tmp_path, parts.P5_TWO))
    assert "rank 0 is on more than one node: one, two" in result
    assert "NCCL counts 1 node, not the 2 asked for" in result


@pytest.mark.parametrize("expectations", [Expectations(nodes=2, ranks=16), Expectations(nodes=2), Expectations()])
def test_a_training_whose_groups_have_ranks_of_their_own(tmp_path: Path, expectations: Expectations) -> None:
    """Hybrid sharding: each node has a communicator of its own, pairs of GPUs another, and none has all ranks."""
    logs = parts.write(tmp_path / "a", [LoggedNode("one")], ()) + parts.write(tmp_path / "b", [LoggedNode("two")], ())
    for n, log in enumerate(logs):
        prefix = f"{('one', 'two')[n // 8]}:{4000 + n % 8}:{4000 + n % 8} [{n % 8}] NCCL INFO"
        with log.open("a") as file:
            file.write(f"{prefix} comm 0x6 rank {n // 8} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n")
    result = from_logs.job_result(logs, None, (), tmp_path, replace(expectations, fabric="efa"))
    assert (result.exit_code, sentences(result)) == (0, [])
    if expectations.ranks:
        silent = from_logs.job_result(logs[:15], None, (), tmp_path, replace(expectations, fabric="efa"))
        assert sentences(silent) == ["15 of 16 ranks have lines in the logs"]


def test_wrong_elements_name_their_line(tmp_path: Path) -> None:
    result = judged(tmp_path, rows=(*P5[:2], (1 << 34, 66132.0, 259.78, 487.09, 3)))
    assert result.exit_code == 1
    (problem,) = result.runs[0].problems
    assert problem.sentence == "wrong elements at 16 GiB"
    assert (tmp_path / "logs/0.log").read_text().split("\n")[int(problem.where[0].rpartition(":")[2]) - 1].endswith("3")


def test_a_log_that_stops_before_the_test_did(tmp_path: Path) -> None:
    result = judged(tmp_path, is_complete=False)
    assert result.exit_code == 3
    assert sentences(result) == ["the measurement is not complete: the log stops after 16 GiB"]


@pytest.mark.parametrize(("plugin", "image", "wrong"), [("1.21.1", "1.21.1", False), ("1.14.0", "1.21.1", True)])
def test_a_plugin_that_is_not_the_images(tmp_path: Path, plugin: str, image: str, wrong: bool) -> None:
    against = replace(parts.P5_TWO, versions={"plugin": image, "libfabric": "2.6.0amzn1.0", "nccl": "2.28.9"})
    result = judged(tmp_path, [replace(node, plugin=plugin) for node in TWO], against=against)
    assert sentences(result) == (
        ["every node: aws-ofi-nccl is 1.14.0, and the image's report says 1.21.1"] if wrong else []
    )


def test_erdma_on_both_devices(tmp_path: Path) -> None:
    result = judged(tmp_path, [verbs("one"), verbs("two")], against=ERDMA)
    assert (result.exit_code, sentences(result)) == (0, [])
    assert result.runs[0].nodes[0].devices == ("erdma_0", "erdma_1")


def test_a_pod_that_was_given_one_of_two_erdma_devices(tmp_path: Path) -> None:
    result = judged(tmp_path, [verbs("one"), verbs("two", ("erdma_0",), 1)], against=ERDMA)
    assert sentences(result) == ["two: only 1 of the 2 adapters of ecs.ebmgn9gc.64xlarge"]
    assert "allocateAllDevices" in result.runs[0].problems[0].fix


def test_gpus_that_all_take_the_first_device(tmp_path: Path) -> None:
    """alibabacloud-erdma-controller, docs/erdma-benchmark: without NVLink and a graph file."""
    result = judged(tmp_path, [verbs("one", used=1), verbs("two", used=1)], against=ERDMA)
    assert sentences(result) == ["every node: channels use 1 of its 2 devices"]


def test_a_run_over_tcp_that_used_the_fabric(tmp_path: Path) -> None:
    """pyxis: the image's NCCL_NET has precedence over the job's, so that EFA is measured twice."""
    result = judged(tmp_path, tcp=TWO)
    assert result.exit_code == 1
    assert result.sentence.startswith("the run over TCP is not over TCP alone: the channels use EFA")
    assert "--container-env=NCCL_NET" in result.runs[1].problems[0].fix


def test_a_job_is_measured_by_its_largest_size_and_never_by_the_average(tmp_path: Path) -> None:
    """github.com/aws/aws-k8s-tester/pull/503: is "Avg bus bandwidth : 92.3405" right? It depends on -b and -e."""
    result = judged(tmp_path)
    assert result.runs[0].largest
    assert "92.3405" in (tmp_path / "logs/0.log").read_text()
    assert result.runs[0].largest.busbw == 487.09
    assert "92.3" not in run_files.RESULT.text(result)


def measured_run(name: str, rows: dict[int, float]) -> RunResult:
    timings = {size: Bandwidth(1.0, busbw, busbw, 0) for size, busbw in rows.items()}
    measurements = [
        Measurement("all_reduce", size, "float", "sum", "-1", timing, timing, "0.log:1")
        for size, timing in timings.items()
    ]
    if name == "tcp":
        return RunResult("tcp", "fallback", True, "", {}, 16, (), tuple(measurements))
    return RunResult("fabric", "efa", True, "", {}, 16, (), tuple(measurements))


def test_the_table_of_the_sky_pilot_documentation(tmp_path: Path) -> None:
    """Size, EFA, TCP, speed-up of two p4d, as its page has them."""
    efa = {8: 0.0, 512: 0.01, 8 << 10: 0.08, 1 << 20: 4.61, 32 << 20: 31.85, 1 << 30: 75.34, 2 << 30: 77.35}
    tcp = {8: 0.0, 512: 0.01, 8 << 10: 0.06, 1 << 20: 1.65, 32 << 20: 3.58, 1 << 30: 4.08, 2 << 30: 4.13}
    result = replace(judged(tmp_path), runs=(measured_run("fabric", efa), measured_run("tcp", tcp)))
    ratios = [f"{line.ratio:.1f}" if line.ratio else "-" for line in tables.compare_sizes(*result.runs)]
    assert ratios == ["-", "1.0", "1.3", "2.8", "8.9", "18.5", "18.7"]


def test_a_run_without_any_expectation_is_reported_as_it_is(tmp_path: Path) -> None:
    result = judged(tmp_path, against=NO_EXPECTATIONS)
    assert (result.exit_code, result.share) == (0, None)


@pytest.mark.parametrize(
    ("name", "exit_code", "sentence"),
    [
        ("2.19.6-socket.txt", 1, "the channels use TCP sockets"),
        ("2.19.6-tcp-provider.txt", 1, "the channels use libfabric over tcp, not EFA"),
        ("2.19.6-refused.txt", 1, "NCCL did not start"),
        ("2.19.6-one-node.txt", 0, "one node, no network; all_reduce of 1 GiB at 327.4 GB/s"),
    ],
)
def test_real_logs(name: str, exit_code: int, sentence: str) -> None:
    result = from_logs.read_job_result([RESULTS / name])
    assert result.exit_code == exit_code
    assert result.sentence.startswith(sentence)


@pytest.mark.parametrize(
    "option", [{"tcp": Path("tcp")}, {"job": Path("j")}, {"instance": "p5.48xlarge"}, {"nodes": 2}]
)
def test_an_existing_result_takes_no_option_about_its_job(option: Any) -> None:
    with pytest.raises(RefusedError, match=r"result\.json has the result of its job\nleave out --"):
        from_logs.read_job_result([Path("runs/1/result.json")], **option)


def test_places_of_both_runs_are_relative_to_what_holds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts.write(tmp_path / "fabric")
    parts.write(tmp_path / "sockets", TCP)
    monkeypatch.chdir(tmp_path)
    result = from_logs.read_job_result([Path("fabric")], tmp_path / "sockets", instance="p5.48xlarge", nodes=2)
    assert [run.measurements[0].where.partition(":")[0] for run in result.runs] == ["fabric/0.log", "sockets/0.log"]


FORMS: dict[str, Callable[[str], str]] = {
    "CRLF": lambda line: f"{line}\r",
    "docker's json-file": lambda line: json.dumps(
        {"log": f"{line}\n", "stream": "stdout", "time": "2026-11-22T06:00:00Z"}
    ),
    "colours": lambda line: f"\x1b[32m{line}\x1b[0m",
    "kubectl --prefix --timestamps": lambda line: f"[pod/job-0/main] 2026-11-22T06:00:00.123456789Z {line}",
    "mpirun --tag-output": lambda line: f"[1,0]<stdout>:{line}",
    "srun --label": lambda line: f" 0: {line}",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_real_log_says_the_same_in_every_form(tmp_path: Path, form: str) -> None:
    lines = (RESULTS / "2.19.6-tcp-provider.txt").read_text().split("\n")
    (tmp_path / "0.log").write_text("\n".join(map(FORMS[form], lines)))
    (read,), (real,) = (
        from_logs.read_job_result([tmp_path]).runs,
        from_logs.read_job_result([RESULTS / "2.19.6-tcp-provider.txt"]).runs,
    )
    assert (read.sentence, read.channels, read.ranks) == (real.sentence, real.channels, real.ranks)
    assert [size_and_timing(row) for row in read.measurements] == [size_and_timing(row) for row in real.measurements]
    assert [(node.name, node.ranks, node.gpudirect and node.gpudirect.value) for node in read.nodes] == [
        (node.name, node.ranks, node.gpudirect and node.gpudirect.value) for node in real.nodes
    ]


def size_and_timing(row: Measurement) -> tuple[int, Bandwidth | None]:
    return row.size, row.out_of_place


def test_the_page_says_what_the_terminal_says_and_fetches_nothing(tmp_path: Path) -> None:
    result = judged(tmp_path, tcp=TCP)
    output = result_table.result_html(result)
    assert html.escape(result.sentence) in output
    assert "logs/0.log:4" in output
    assert "http" not in output


def test_the_terminal_says_where_everything_was_read(tmp_path: Path) -> None:
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as captured:
        console.print(result_table.result_table(judged(tmp_path, against=Expectations(nodes=2))))
    assert "logs/0.log:4" in captured.get()


def test_the_name_of_a_log_moves_no_cursor(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2J.log").write_text((RESULTS.parent / "nccl-logs" / "net-socket.log").read_text())
    places = [place for problem in from_logs.read_job_result([tmp_path]).runs[0].problems for place in problem.where]
    assert places
    assert all(place.isprintable() for place in places)
