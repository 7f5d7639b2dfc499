"""The SageMaker image's command `train` without a container: job files and processes."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import sagemaker_job
import sagemaker_launch
import sagemaker_train
from moto.server import ThreadedMotoServer
from sagemaker_job import JobError

from rdma_images.core import paths, yaml_file
from rdma_images.facts.environment import Environment

PROGRAM = paths.DATA / "dockerfiles" / "scripts" / "sagemaker_train.py"
RESOURCES = {
    "current_host": "algo-10",
    "current_instance_type": "ml.p5.48xlarge",
    "current_group_name": "homogeneousCluster",
    "hosts": ["algo-2", "algo-10", "algo-1"],
    "instance_groups": [
        {"instance_group_name": "homogeneousCluster", "instance_type": "ml.p5.48xlarge", "hosts": ["algo-1"]}
    ],
    "network_interface_name": "eth0",
}
# As the SDK sends them: every value a string, and that string JSON.
HYPERPARAMETERS = {
    "sagemaker_program": '"job.py"',
    "sagemaker_submit_directory": '"/nowhere"',
    "sagemaker_region": '"eu-west-1"',
    "_tuning_objective_metric": "loss",
    "batch-size": "256",
    "lr": "0.0001",
    "name": '"a b"',
    "raw": "not json",
    "nothing": "null",
    "map": '{"b": 2, "a": 1}',
    "x": "true",
}
CHANNELS = {"training": {"TrainingInputMode": "LayerFile"}, "testing": {"TrainingInputMode": "LayerFile"}}


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a job's configuration, without files that are None."""

    def write(resources: Any = RESOURCES, hyperparameters: Any = HYPERPARAMETERS, channels: Any = CHANNELS) -> Path:
        config = tmp_path / "input" / "config"
        config.mkdir(parents=True, exist_ok=True)
        files = {"resourceconfig": resources, "hyperparameters": hyperparameters, "inputdataconfig": channels}
        for name, content in files.items():
            if content is not None:
                text = content if isinstance(content, str) else json.dumps(content)
                (config / f"{name}.json").write_text(text)
        return tmp_path

    return write


@pytest.fixture
def source(configured: Callable[..., Path]) -> Path:
    """/opt/ml/code with a program."""
    code = configured() / "code"
    code.mkdir()
    (code / "job.py").write_text("print(1)\n")
    return code


def job(configured: Callable[..., Path], **settings: object) -> sagemaker_job.TrainingJob:
    """Return a job with these settings among its hyperparameters."""
    return sagemaker_job.read_job(configured(hyperparameters={"sagemaker_program": "job.py", **settings}))


def test_the_first_of_the_sorted_hosts_leads(configured: Callable[..., Path]) -> None:
    read = sagemaker_job.read_job(configured())
    assert read.hosts == ("algo-1", "algo-10", "algo-2")
    assert sagemaker_launch.torchrun_options(read, 8) == [
        "--nnodes=3",
        "--nproc-per-node=8",
        "--node-rank=1",
        "--master-addr=algo-1",
        "--master-port=7777",
    ]


def test_one_host_meets_nobody(configured: Callable[..., Path]) -> None:
    read = sagemaker_job.read_job(configured(resources={"hosts": ["algo-1"], "current_host": "algo-1"}))
    assert sagemaker_launch.torchrun_options(read, 1) == ["--standalone", "--nproc-per-node=1"]
    assert read.interface == "eth0"


def test_hyperparameters_are_arguments_and_ours_are_not(configured: Callable[..., Path]) -> None:
    arguments = sagemaker_job.arguments(sagemaker_job.read_job(configured()))
    assert dict(zip(arguments[::2], arguments[1::2], strict=True)) == {
        "--batch-size": "256",
        "--lr": "0.0001",
        "--name": "a b",
        "--raw": "not json",
        "--nothing": "",
        "--map": "a=1,b=2",
        "-x": "True",
    }
    assert arguments[::2] == sorted(arguments[::2], key=lambda name: name.lstrip("-"))


def test_the_program_finds_the_variables_that_the_toolkit_documents(configured: Callable[..., Path]) -> None:
    read = sagemaker_job.read_job(configured())
    variables = sagemaker_job.variables(read, "job.py", Path("/opt/ml/code"), 8)
    assert json.loads(variables["SM_HOSTS"]) == ["algo-1", "algo-10", "algo-2"]
    assert variables["SM_CURRENT_HOST"] == "algo-10"
    assert variables["SM_NUM_GPUS"] == "8"
    assert variables["SM_NETWORK_INTERFACE_NAME"] == "eth0"
    assert variables["SM_MODEL_DIR"] == str(read.ml / "model")
    assert variables["SM_OUTPUT_DATA_DIR"] == str(read.ml / "output" / "data")
    assert variables["SM_CHANNEL_TRAINING"] == str(read.ml / "input" / "data" / "training")
    assert json.loads(variables["SM_CHANNELS"]) == ["testing", "training"]
    assert variables["SM_HP_BATCH-SIZE"] == "256"
    assert json.loads(variables["SM_HPS"])["lr"] == 0.0001
    assert "SM_HP_SAGEMAKER_PROGRAM" not in variables
    assert json.loads(variables["SM_RESOURCE_CONFIG"]) == RESOURCES
    assert json.loads(variables["SM_TRAINING_ENV"])["current_host"] == "algo-10"
    assert all(isinstance(value, str) for value in variables.values())


def test_nothing_is_set_that_the_facts_know(configured: Callable[..., Path]) -> None:
    """No file of the image names what is harmful by the facts.

    But Gloo's interface: SageMaker names it, and a job may set it where an image may not.
    """
    rows = yaml_file.load(paths.FACTS / "environment.yaml", Environment).variables.values()
    fact_names = {row.name for row in rows} - {"GLOO_SOCKET_IFNAME"}
    variables = sagemaker_job.variables(sagemaker_job.read_job(configured()), "job.py", Path("/"), 1)
    assert {"NCCL_PROTO", "NCCL_SOCKET_IFNAME", "RDMAV_FORK_SAFE", "FI_EFA_USE_DEVICE_RDMA"} <= fact_names
    assert not fact_names & set(variables)
    text = "".join(file.read_text() for file in PROGRAM.parent.glob("sagemaker_*.py"))
    assert not [name for name in fact_names if name in text]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (None, "resourceconfig.json is missing"),
        ("{", "resourceconfig.json is no JSON"),
        ("[]", "holds list"),
        ({"current_host": "a"}, "hosts is None"),
        ({"current_host": "a", "hosts": []}, "hosts is []"),
        ({"current_host": "a", "hosts": "a"}, "hosts is 'a'"),
        ({"current_host": "c", "hosts": ["a", "b"]}, "'c' is none of the hosts a, b"),
    ],
)
def test_a_bad_resourceconfig_is_reported_with_its_fix(
    configured: Callable[..., Path], resources: str | dict[str, str | list[str]] | None, expected: str
) -> None:
    with pytest.raises(JobError) as error:
        sagemaker_job.read_job(configured(resources=resources))
    problem, fix = str(error.value).split("\n")
    assert expected in problem
    assert fix.endswith(".")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"sagemaker_program": ""}, "names no program"),
        ({"sagemaker_program": "run.sh"}, "run.sh is no Python file"),
        ({"sagemaker_program": "other.py"}, "other.py is not in"),
        ({"sagemaker_mpi_enabled": "true"}, "sagemaker_mpi_enabled, which this image does not have"),
    ],
)
def test_a_program_that_torchrun_cannot_start(
    configured: Callable[..., Path], source: Path, settings: dict[str, str], expected: str
) -> None:
    with pytest.raises(JobError, match=expected):
        sagemaker_job.find_program(job(configured, **settings), source)


def test_the_program_is_found(
    configured: Callable[..., Path], source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "requirements.txt").write_text("einops\n")
    assert sagemaker_job.find_program(job(configured, sagemaker_mpi_enabled="false"), source) == "job.py"
    assert "requirements.txt is not installed" in capsys.readouterr().err
    monkeypatch.setenv("SAGEMAKER_PROGRAM", "job2.py")
    with pytest.raises(JobError, match=r"job2\.py is not in .*: there is job\.py"):
        sagemaker_job.find_program(job(configured), source)


def archive(folder: Path, path: Path) -> Path:
    """Return the folder's files in a tar.gz."""
    with tarfile.open(path, "w:gz") as tar:
        for file in folder.iterdir():
            tar.add(file, file.name)
    return path


def test_the_source_is_a_folder_or_an_archive(configured: Callable[..., Path], source: Path, tmp_path: Path) -> None:
    assert sagemaker_job.find_source(job(configured)) == tmp_path / "code"
    assert sagemaker_job.find_source(job(configured, sagemaker_submit_directory=str(tmp_path))) == tmp_path
    packed = archive(source, tmp_path / "sourcedir.tar.gz")
    (source / "job.py").unlink()
    assert sagemaker_job.find_source(job(configured, sagemaker_submit_directory=str(packed))) == source
    assert (source / "job.py").read_text() == "print(1)\n"


@pytest.mark.parametrize("content", [None, b"no archive"])
def test_a_source_that_is_no_archive(configured: Callable[..., Path], tmp_path: Path, content: bytes | None) -> None:
    archive_path = tmp_path / "sourcedir.tar.gz"
    if content:
        archive_path.write_bytes(content)
    with pytest.raises(JobError, match=r"sourcedir\.tar\.gz cannot be unpacked"):
        sagemaker_job.find_source(job(configured, sagemaker_submit_directory=str(archive_path)))


@pytest.mark.parametrize("filters", [True, False])
def test_an_archive_writes_nowhere_else(
    configured: Callable[..., Path], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: bool
) -> None:
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    archive_path = tmp_path / "sourcedir.tar.gz"
    with tarfile.open(archive_path, "w:gz") as tar:
        tar.add(source / "job.py", "../outside.py")
    with pytest.raises(JobError, match="cannot be unpacked"):
        sagemaker_job.find_source(job(configured, sagemaker_submit_directory=str(archive_path)))
    assert not (tmp_path / "outside.py").exists()


def test_the_source_is_fetched_from_s3(
    configured: Callable[..., Path], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    try:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="bucket")
        s3.upload_file(str(archive(source, tmp_path / "a.tar.gz")), "bucket", "job/source/sourcedir.tar.gz")
        (source / "job.py").unlink()
        url = "s3://bucket/job/source/sourcedir.tar.gz"
        assert sagemaker_job.find_source(job(configured, sagemaker_submit_directory=url)) == source
        assert (source / "job.py").exists()
        with pytest.raises(JobError, match=r"(?s)s3://bucket/absent cannot be fetched: .*404.*\nCheck the name"):
            sagemaker_job.find_source(job(configured, sagemaker_submit_directory="s3://bucket/absent"))
    finally:
        server.stop()


def test_gpus_are_those_that_the_driver_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sagemaker_job.count_gpus() == 0
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: a)'\necho 'GPU 1: NVIDIA H200 (UUID: b)'\n")
    tool.chmod(0o755)
    assert sagemaker_job.count_gpus() == 2
    tool.write_text("#!/bin/sh\necho 'Unable to determine the device handle for GPU1: Unknown Error'\nexit 15\n")
    with pytest.raises(JobError, match="Unable to determine the device handle"):
        sagemaker_job.count_gpus()


def test_a_host_without_an_address_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    clock = SimpleNamespace(sleep=pauses.append, monotonic=lambda: sum(pauses))
    monkeypatch.setattr(sagemaker_launch, "time", clock)
    sagemaker_launch.wait_for(["localhost"], limit=0)
    monkeypatch.setattr(sagemaker_launch, "has_address", lambda host: host == "localhost")
    with pytest.raises(JobError, match=r"algo-9\.invalid has no address after 60 s"):
        sagemaker_launch.wait_for(["localhost", "algo-9.invalid"], limit=60)
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert max(pauses) == 15
    assert 45 < sum(pauses) <= 60


def launched(tmp_path: Path, launcher: str) -> tuple[int, str]:
    """Return a Python program in torchrun's place."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        return sagemaker_launch.run([sys.executable, "-c", launcher], dict(os.environ), tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)


WORKER = """
import signal, sys, time
def save(*_):
    time.sleep(1)
    open("saved", "w").close()
    sys.exit({code})
signal.signal(signal.SIGTERM, save)
open("ready", "w").close()
time.sleep(60)
"""
LAUNCHER = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {worker!r}]).returncode)"


@pytest.mark.parametrize("code", [0, 9])
def test_sigterm_reaches_the_processes_which_have_time_to_save(tmp_path: Path, code: int) -> None:
    """It does not reach their launcher, which would die of it and lose their exit code."""

    def stop() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    Timer(0, stop).start()
    ended, reason = launched(tmp_path, LAUNCHER.format(worker=WORKER.format(code=code)))
    assert (tmp_path / "saved").exists()
    assert ended == code
    assert reason == ("after SIGTERM the job ended with 9\n" if code else "")


FAILING = """
import sys
start = "Traceback (most recent call last):"
print("x" * 100_000, file=sys.stderr)
print(start, '  File "job.py", line 3, in step', "ValueError: nan", sep="\\n", file=sys.stderr)
print(start, '  File "b.py", line 1, in wait', "EOFError: peer", sep="\\n", file=sys.stderr)
print("train: rank 1 ended with 3", file=sys.stderr)
sys.exit(3)
"""


def test_the_reason_begins_with_the_rank_and_the_first_error(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    ended, reason = launched(tmp_path, FAILING)
    assert ended == 3
    assert reason.startswith("rank 1 ended with 3: ValueError: nan\nTraceback")
    assert len(reason) <= sagemaker_train.LONGEST
    assert b"x" * 100_000 in capfdbinary.readouterr().err


def test_the_reason_is_of_the_rank_that_failed_first() -> None:
    """Another rank's traceback may come before it: torch names the rank on each line."""
    start = "Traceback (most recent call last):\n"
    errors = (
        f'[rank0]: {start}[rank0]:   File "job.py", line 9\n[rank1]: {start}[rank0]: EOFError: peer\n'
        '[rank1]:   File "job.py", line 3\n[rank1]: ValueError: nan\ntrain: rank 1 ended with 1\n'
    )
    reason = sagemaker_launch.reason(1, errors, stopped=False)
    assert reason == f'rank 1 ended with 1: ValueError: nan\n{start}  File "job.py", line 3\nValueError: nan'


def run_train(ml: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Return the command itself."""
    environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(ml)}
    command = [sys.executable, str(PROGRAM), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_the_command_tells_a_failure_where_sagemaker_reads_it(configured: Callable[..., Path]) -> None:
    ml = configured(resources="{")
    completed = run_train(ml)
    assert completed.returncode == 1
    assert "Traceback" not in completed.stderr
    assert "resourceconfig.json is no JSON" in (ml / "output" / "failure").read_text()


def test_what_the_program_wrote_of_its_failure_stays(configured: Callable[..., Path]) -> None:
    ml = configured(resources="{")
    (ml / "output").mkdir()
    (ml / "output" / "failure").write_text("mine")
    assert run_train(ml).returncode == 1
    assert (ml / "output" / "failure").read_text() == "mine"


@pytest.mark.usefixtures("source")
def test_the_command_ends_of_sigterm_while_it_waits(configured: Callable[..., Path]) -> None:
    ml = configured(
        {"hosts": ["localhost", "algo-9.invalid"], "current_host": "localhost"}, {"sagemaker_program": "job.py"}
    )
    environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(ml)}
    process = subprocess.Popen([sys.executable, str(PROGRAM)], env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    assert process.stderr.readline() == "train: waiting for algo-9.invalid\n"
    process.terminate()
    assert process.wait(60) == 143
    process.stderr.close()
