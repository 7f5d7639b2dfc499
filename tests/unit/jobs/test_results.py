"""What the logs of a job's ranks say together."""

from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.jobs.results import from_logs, run_files
from rdma_images.jobs.results.result import RunResult
from rdma_images.jobs.write import job_folder
from tests.support import job_parts

LOGS = Path(__file__).parents[2] / "data" / "nccl-logs"


def test_a_result_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    result = from_logs.job_result([LOGS / "gpu-two-nodes.log"], None)
    run_files.write(result, tmp_path)
    assert run_files.load(tmp_path) == result


def test_what_is_no_result_is_reported_with_what_makes_one(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"schema": 2}')
    with pytest.raises(RdmaImagesError, match=r"verdict DIR` again"):
        run_files.load(tmp_path)


def test_a_run_finds_its_logs_and_the_job_it_was_asked_to_be(tmp_path: Path) -> None:
    job = job_parts.job("slurm", "efa", "mpirun")
    (tmp_path / "job.json").write_text(job_folder.job_text(job, {}))
    run = tmp_path / "runs" / "20261122T060000Z"
    for logs, log in (("logs", "gpu-two-nodes.log"), ("tcp/logs", "net-socket.log")):
        (run / logs).mkdir(parents=True)
        (run / logs / "0.log").write_bytes((LOGS / log).read_bytes())
    result = from_logs.read_job_result([run])
    assert (result.job, result.digest, result.nodes) == (job.name, job.image.partition("@")[2], 2)
    assert [run.name for run in result.runs] == ["fabric", "tcp"]
    (run / "run.json").write_text("{}")
    (run / "logs" / "0.log").unlink()
    with pytest.raises(RefusedError, match="no logs in this folder"):
        from_logs.read_job_result([run])
    assert job_folder.load(tmp_path).ranks == 16


def test_the_files_of_a_job_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(job_folder.job_text(job_parts.job("slurm", "efa", "mpirun"), {"job.sbatch": ""}))
    (tmp_path / "job.sbatch").write_text("#!/bin/bash\n")
    with pytest.raises(RefusedError, match="no logs in this folder\ngive the folder of a run"):
        from_logs.find_logs(tmp_path)
    (tmp_path / "0.log").write_text("x")
    assert from_logs.find_logs(tmp_path) == (tmp_path / "0.log",)


def training(folder: Path, logs: str) -> RunResult:
    """Return the result of the real training that left these logs, on two nodes with a GPU each."""
    job = job_parts.job("docker", "efa", "torchrun", gpus=1)
    (folder / "job.json").write_text(job_folder.job_text(job, {}))
    (run,) = from_logs.job_result([LOGS / f"{logs}-{rank}.log" for rank in (0, 1)], job_folder.load(folder)).runs
    return run


def test_a_training_over_tcp_is_a_fallback_on_both_nodes(tmp_path: Path) -> None:
    run = training(tmp_path, "training")
    assert (run.network, run.good, run.ranks) == ("fallback", False, 2)
    assert [list(node.ranks) for node in run.nodes] == [[0], [1]]
    assert [problem.sentence for problem in run.problems] == [
        "the channels use libfabric over tcp, not EFA (8 NET/Libfabric)",
        "every node: only 1 of the 4 adapters of p5.48xlarge",
    ]


def test_a_job_that_its_preflight_ended_is_reported(tmp_path: Path) -> None:
    for rank in (0, 1):
        line = f"rdma-preflight node{rank} error devices: the kernel has no efa device"
        (tmp_path / f"{rank}.log").write_text(f"{line}\n")
    (problem,) = from_logs.read_job_result([tmp_path]).runs[0].problems
    assert problem.sentence == "the preflight of node0 ended the job: devices: the kernel has no efa device"
    assert problem.where == ("0.log:1", "1.log:1")


def test_a_refusal_before_the_first_rank_is_the_only_problem(tmp_path: Path) -> None:
    """NCCL has no ranks yet: a fix that asks for its log would be wrong, since the log is there."""
    (problem,) = training(tmp_path, "training-refused").problems
    assert problem.sentence.startswith("NCCL did not start: NCCL_NET names a network that is not there")
