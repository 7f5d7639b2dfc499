"""`invoke job.run` on a real Slurm: nothing of the run is ever left in the queue."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import PROJECT
from rdma_images.jobs.run import record, run_job
from rdma_images.jobs.write import create
from tests.e2e import slurm_parts, test_jobs_slurm, unpacked
from tests.support import job_parts as jobs

pytestmark = [pytest.mark.e2e, pytest.mark.part("slurm"), unpacked.needs]

LOG = PROJECT / "tests" / "data" / "nccl-logs" / "gpu-two-nodes-nccl-tests.log"
# In the place of torchrun: runs what torchrun would run, once a node.
TORCHRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""


@pytest.fixture(scope="module", name="slurm")
def _slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with slurm_parts.cluster(tmp_path_factory.mktemp("slurm")) as programs:
        yield programs


@pytest.fixture(autouse=True)
def _path(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{slurm}:{os.environ['PATH']}")


def queue() -> list[str]:
    return subprocess.run(["squeue", "--noheader", "--format=%j"], capture_output=True, text=True).stdout.split()


def job(tmp_path: Path, command: str) -> Path:
    """Return the folder of a job whose every node runs a line of sh."""
    folder = tmp_path / "job"
    parameters = {"runtime": "oci", "bundle": str(tmp_path / "bundle")}
    request = jobs.job_request(
        "slurm", "efa", "torchrun", parameters=parameters, name="measured", command=("sh", "-c", command)
    )
    create.write_job(request, jobs.load_project(), str(folder))
    (tmp_path / "bundle").mkdir()
    test_jobs_slurm.bundle(tmp_path / "bundle", tmp_path)
    (tmp_path / "bundle" / "rootfs" / "opt" / "torchrun").write_text(TORCHRUN)
    shutil.copy(LOG, tmp_path / "nccl.log")  # the container sees this folder
    return folder


def start(folder: Path, lines: list[str], **options: Any) -> Path:
    return run_job.run_job(folder, jobs.load_project(), run_job.JobRunOptions(**options), lines.append)


def ended(folder: Path) -> record.SubmissionRecord:
    (run,) = (folder / "runs").iterdir()
    return record.load(run)[-1]


def test_a_job_and_the_same_over_tcp(tmp_path: Path) -> None:
    """The job's log is kept, and the second run's network is another."""
    folder = job(tmp_path, f'echo "on $NCCL_NET"; sleep 3; cat {tmp_path}/nccl.log')
    lines: list[str] = []
    run_folder = start(folder, lines, tcp=True)
    assert queue() == []
    (expected,) = (run_folder / "logs").glob("measured-*.log")
    (over_tcp,) = (run_folder / "tcp" / "logs").glob("measured-tcp-*.log")
    assert expected.read_text().count("on Libfabric") == over_tcp.read_text().count("on Socket") == 2
    assert [(entry.run, entry.ending, entry.cleanup) for entry in record.load(run_folder)] == [
        ("fabric", "succeeded", "removed"),
        ("tcp", "succeeded", "removed"),
    ]
    assert any("running" in line for line in lines)


def test_a_bad_node_is_named_before_the_command_starts(tmp_path: Path) -> None:
    """What the preflight prints for a node ends the run, and the node can be excluded."""
    folder = job(tmp_path, "echo trained")
    finding = f"rdma-preflight {socket.gethostname()} error memlock: only 8192 KiB of memory can be locked"
    program = tmp_path / "bundle" / "rootfs" / "opt" / "rdma-preflight"
    program.write_text(f"#!/bin/sh\necho {finding}\nsleep 20\nexit 96\n")
    lines: list[str] = []
    run_folder = start(folder, lines)
    assert "memlock: only 8192 KiB of memory can be locked" in ended(folder).why
    assert any("error: " in line and "memlock: only 8192 KiB" in line for line in lines)
    assert "trained" not in "".join(log.read_text() for log in (run_folder / "logs").glob("*.log"))
    assert f"the same job on other nodes: invoke job … --param exclude={socket.gethostname()}" in lines
    assert queue() == []


def test_a_rank_that_is_killed_ends_the_job(tmp_path: Path) -> None:
    folder = job(tmp_path, "[ $(($$ % 2)) = 0 ] || true; kill -9 $$")
    start(folder, [])
    assert ended(folder).ending == "failed"
    assert "exit code" in ended(folder).why
    assert queue() == []


def test_a_job_that_runs_too_long_is_removed_with_its_logs_kept(tmp_path: Path) -> None:
    folder = job(tmp_path, "echo begun; sleep 60")
    with pytest.raises(RdmaImagesError, match=r"did not end in 0:20: RUNNING on n\[1-2\]"):
        start(folder, [], limit=20)
    assert queue() == []
    assert "begun" in next(folder.glob("runs/*/logs/measured-*.log")).read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.exhaustive)])
def test_who_stops_leaves_nothing_and_touches_no_job_of_another(tmp_path: Path, number: signal.Signals) -> None:
    subprocess.run(["sbatch", "--hold", "--job-name=other", "--wrap=true"], check=True, capture_output=True)
    folder = job(tmp_path, "sleep 60")

    def lose_terminal(line: str) -> None:
        if "running" in line:
            os.kill(os.getpid(), number)
        raise OSError("EIO")

    with pytest.raises(run_job.JobEndedError) as raised:
        run_job.run_job(folder, jobs.load_project(), run_job.JobRunOptions(), lose_terminal)
    assert raised.value.exit_code == 128 + number
    assert queue() == ["other"]
    assert ended(folder).cleanup == "removed"
    subprocess.run(["scancel", "--name=other"], check=True)


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """And while it runs, a second run of the same job is refused."""
    folder = job(tmp_path, "sleep 3")
    command = [sys.executable, "-m", "invoke", "job.run", str(folder), "--timeout", "60s"]
    with subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr
        for line in first.stderr:
            if "waiting" in line or "running" in line:
                break
        with pytest.raises(RdmaImagesError, match=f"job-measured-.* is held by process {first.pid}"):
            start(folder, [])
        first.kill()
    assert queue() == ["measured"]
    lines: list[str] = []
    start(folder, lines)
    assert any("removing what the run of" in line for line in lines)
    assert queue() == []


def test_the_command_gives_the_result_of_what_it_collected(tmp_path: Path) -> None:
    """Ctrl-C included: its exit code is that of a program ended by it."""
    folder = job(tmp_path, f"cat {tmp_path}/nccl.log")
    command = [sys.executable, "-m", "invoke", "job.run", str(folder), "--json"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "tcp" in json.loads(done.stdout)["sentence"]
    assert json.loads(next(folder.glob("runs/*/result.json")).read_text())["job"] == "measured"
    assert queue() == []


def test_a_job_that_cannot_start_says_which_node_is_drained_and_why(tmp_path: Path) -> None:
    subprocess.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=bad cable"], check=True)
    try:
        with pytest.raises(RdmaImagesError, match=r"did not start in 0:02: PENDING.*n2 is drained: bad cable"):
            start(job(tmp_path, "true"), [], limit=2)
    finally:
        subprocess.run(["scontrol", "update", "nodename=n2", "state=resume"], check=True)
    assert queue() == []
