"""`invoke job.run` without a cluster: Docker, sky and SageMaker, each as far as it can be had, and what is refused."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from invoke.exceptions import Exit
from moto import mock_aws

from rdma_images.cli.jobs import job_run as job_run_task
from rdma_images.core.errors import RdmaImagesError
from rdma_images.jobs.run import kubernetes, record, run_job, sagemaker
from rdma_images.jobs.run.runner import Submission
from rdma_images.jobs.write import create, job_folder
from rdma_images.jobs.write.job_settings import CODE, Code, JobSettings
from tests.support import job_parts as jobs

# Says how it was called; what the job runs is the variable TEST_JOB.
PROGRAM = """#!/bin/bash
echo "$(basename "$0") $*" >> CALLS
case $1 in
  run | launch) echo "ran $(basename "$0")"; eval "$TEST_JOB" ;;
esac
"""


@pytest.fixture(name="calls")
def _calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return what docker and sky were called with, where they only say so."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("docker", "sky"):
        (programs / name).write_text(PROGRAM.replace("CALLS", str(tmp_path / "calls")))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("TEST_JOB", "true")
    return tmp_path / "calls"


def write_job(tmp_path: Path, launcher: str, **changes: Any) -> Path:
    request = jobs.job_request(launcher, "efa", "torchrun", name="j", **changes)
    if launcher == "docker":
        request = replace(request, nodes=1, parameters={})
    return create.write_job(request, jobs.load_project(), str(tmp_path / "j"))[1]


def start(folder: Path, **options: Any) -> record.SubmissionRecord:
    return record.load(run_job.run_job(folder, jobs.load_project(), run_job.JobRunOptions(**options), lambda _: None))[
        -1
    ]


@pytest.mark.parametrize(
    ("launcher", "begins", "ends"), [("docker", "run", "rm --force"), ("skypilot", "launch", "down --yes")]
)
def test_what_runs_as_long_as_its_job(tmp_path: Path, calls: Path, launcher: str, begins: str, ends: str) -> None:
    submission = start(write_job(tmp_path, launcher))
    assert (submission.ending, submission.cleanup) == ("succeeded", "removed")
    begun, *_, last = calls.read_text().splitlines()
    assert begins in begun
    assert f"j-{submission.tag}" in begun
    assert last.endswith(f"{ends} j-{submission.tag}")
    (log,) = tmp_path.glob("j/runs/*/logs/*")
    assert "ran " in log.read_text()


def test_a_script_that_fails_is_reported_by_its_last_line(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_JOB", "echo no GPU; exit 3")
    submission = start(write_job(tmp_path, "docker"))
    assert (submission.ending, submission.why) == ("failed", "exit code 3: no GPU")
    assert calls.read_text().splitlines()[-1].startswith("docker rm --force j-")


def test_a_script_that_is_stopped_is_ended_and_its_container_removed(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_JOB", "sleep 60")

    def stop_once_it_runs(line: str) -> None:
        if "running" in line:
            os.kill(os.getpid(), signal.SIGTERM)

    folder = write_job(tmp_path, "docker")
    with pytest.raises(run_job.JobEndedError, match="SIGTERM while it was running") as raised:
        run_job.run_job(folder, jobs.load_project(), run_job.JobRunOptions(), stop_once_it_runs)
    assert raised.value.exit_code == 128 + signal.SIGTERM
    assert "docker rm --force j-" in calls.read_text()


STOPPED = "node:1:1 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129"


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_job_ends_after_a_line_after_which_none_goes_on_unless_it_starts_again(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch, restarts: int
) -> None:
    monkeypatch.setattr("rdma_images.jobs.run.watch.GRACE_SECONDS", 0.1)
    monkeypatch.setenv("TEST_JOB", f"echo '{STOPPED}'; {'sleep 3' if restarts else 'sleep 600'}")
    lines: list[str] = []
    folder = write_job(tmp_path, "docker", settings=JobSettings(restarts=restarts))
    run = run_job.run_job(folder, jobs.load_project(), run_job.JobRunOptions(), lines.append)
    (submission,) = record.load(run)
    assert submission.cleanup == "removed"
    assert (submission.ending, "did not answer over RDMA" in submission.why) == (
        ("succeeded", False) if restarts else ("failed", True)
    )
    assert any("refused: the transport failed while the job ran: a peer did not answer" in line for line in lines)
    assert calls.read_text().splitlines()[-1].startswith("docker rm --force j-")


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"sign": "cosign.key"}, "--sign cosign.key: signs what --attach attaches\nadd --attach"),
        ({"sign": "no.key", "attach": True}, "--sign no.key: no such file"),
        ({"compare": "udp"}, "--compare udp: a job can only be compared"),
    ],
)
def test_an_option_is_refused_before_the_job_starts(
    tmp_path: Path, calls: Path, options: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(Exit, match=refusal):
        job_run_task.body(folder=str(write_job(tmp_path, "docker")), **options)
    assert not calls.exists()


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(("command", "code", "why"), [("true", 3, "exit code 0"), ("exit 3", 1, "did not succeed")])
def test_what_is_not_attached_is_said_with_its_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    code: int,
    why: str,
) -> None:
    monkeypatch.setenv("TEST_JOB", command)
    with pytest.raises(Exit) as ended:
        job_run_task.body(folder=str(write_job(tmp_path, "docker")), attach=True)
    assert ended.value.code == code
    assert f"not attached: only a run with exit code 0 is, and this one's is {code}\n" in capsys.readouterr().err
    (run,) = tmp_path.glob("j/runs/*")
    for options, refusal in (({}, "add --attach"), ({"attach": True, "keep": True}, "--keep"), ({"attach": True}, why)):
        with pytest.raises(Exit, match=refusal):
            job_run_task.body(folder=str(run), **options)


@mock_aws
def test_sagemaker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """moto's training jobs are completed at once; it has the logs and the output that the test puts there."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    folder = write_job(tmp_path, "sagemaker")
    logs = tmp_path / "logs"
    logs.mkdir()
    launcher = jobs.load_project().facts.launchers.launchers["sagemaker"]
    assert launcher.run
    runner = sagemaker.SageMaker(Submission(job_folder.load(folder), launcher.run, folder, logs, "abc"))
    runner.delete()  # before there is one
    runner.submit()
    assert runner.state().phase == "succeeded"
    cloudwatch = boto3.client("logs", region_name="us-west-2")
    cloudwatch.create_log_group(logGroupName=sagemaker.STREAMS)
    now = int(time.time() * 1000)
    for host in range(1, 52):  # a page has 50 streams at most
        name = {"logGroupName": sagemaker.STREAMS, "logStreamName": f"j-abc/algo-{host}-17"}
        cloudwatch.create_log_stream(**name)
        cloudwatch.put_log_events(**name, logEvents=[{"timestamp": now, "message": f"line {n}"} for n in range(3)])
    runner.collect()
    texts = {path.name: path.read_text() for path in logs.iterdir()}
    assert texts == {f"algo-{host}-17.log": "line 0\nline 1\nline 2\n" for host in range(1, 52)}
    calls, states = [], iter(["InProgress", "Stopping", "Stopped"])  # SageMaker answers before the job has stopped
    monkeypatch.setattr(sagemaker, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(runner, "_describe", lambda: {"TrainingJobStatus": next(states)})
    monkeypatch.setattr(runner, "_call", lambda _, operation, __: calls.append(operation))
    runner.delete()
    assert (calls, list(states)) == (["stop-training-job"], [])


def test_a_trainjob_is_created_after_its_runtime_and_removed_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer refuses a TrainJob without its runtime, and the garbage collector's end of one whose runtime is gone.

    kubectl finds no resource "ConfigMap.v1": the group without a name is asked for as "ConfigMap.v1.".
    """
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    folder = write_job(tmp_path, "trainjob", settings=JobSettings(code=Code(str(tmp_path / "src"), CODE)))
    written = [yaml.safe_load((folder / name).read_text()) for name in ("trainjob.yaml", "runtime.yaml")]
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "j-code"}}
    created: list[str] = []
    deleted: list[str] = []

    def output(words: list[Any], stdin: str | None = None, **_: Any) -> str:
        if "kustomize" in words:  # sorted as kubectl sorts it
            return yaml.safe_dump_all([config_map, *written])
        if "create" in words:
            created.extend(item["kind"] for item in json.loads(stdin or "")["items"])
        if "delete" in words:
            deleted.append(words[words.index("delete") + 1])
        return '{"items": []}'

    monkeypatch.setattr(kubernetes, "output", output)
    run_method = jobs.load_project().facts.launchers.launchers["trainjob"].run
    assert run_method
    runner = kubernetes.Kubernetes(Submission(job_folder.load(folder), run_method, folder, tmp_path / "logs", "tag"))
    runner.submit()
    runner.delete()
    assert created == ["ConfigMap", "TrainingRuntime", "TrainJob"]
    assert deleted == [
        "TrainJob.v1alpha1.trainer.kubeflow.org",
        "ConfigMap.v1.,TrainingRuntime.v1alpha1.trainer.kubeflow.org",
    ]


def test_a_folder_that_is_no_jobs(tmp_path: Path) -> None:
    with pytest.raises(RdmaImagesError, match=r"is not the folder of a job: it has no job.json\nname a folder"):
        start(tmp_path)
    (tmp_path / "job.json").write_text('{"name": "x"}')
    with pytest.raises(RdmaImagesError, match=r"job.json: launcher: Field required"):
        start(tmp_path)


def test_a_program_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_job(tmp_path, "slurm")
    monkeypatch.setenv("PATH", str(tmp_path))
    for _ in range(2):  # nothing of the first try is there to be removed
        with pytest.raises(RdmaImagesError, match=r"j was not submitted: sbatch is not on the PATH.*\ninstall it"):
            start(folder)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = write_job(tmp_path, "docker")
    (folder / record.RUNS).write_text("in the way")
    with pytest.raises(RdmaImagesError, match="runs"):
        start(folder)


def test_a_launcher_that_nobody_can_follow(tmp_path: Path) -> None:
    folder = write_job(tmp_path, "docker")
    note = folder / job_folder.JOB_FILE
    note.write_text(note.read_text().replace('"launcher": "docker"', '"launcher": "mine"'))
    with pytest.raises(RdmaImagesError, match=r"job\.run cannot follow jobs of mine\nsubmit it with the commands"):
        start(folder)


@pytest.mark.usefixtures("calls")
def test_a_job_that_was_edited_is_not_run_over_tcp(tmp_path: Path) -> None:
    folder = write_job(tmp_path, "docker")
    assert start(folder, tcp=True).run == "tcp"
    script = folder / "run.sh"
    script.write_text(script.read_text() + "# edited\n")
    with pytest.raises(RdmaImagesError, match=r"run\.sh was edited"):
        start(folder, tcp=True)
    with pytest.raises(RdmaImagesError, match="is itself over TCP"):
        start(write_job(tmp_path / "tcp", "docker", tcp=True), tcp=True)
