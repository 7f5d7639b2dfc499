"""A SageMaker job in the image: its own `train`, real torchrun, two containers as hosts.

The engine here may have no network for containers. The first host's container has a loopback interface alone, with an
address for each host; the second container shares it, and /etc/hosts with it.
"""

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.core import paths, yaml_file
from rdma_images.facts.environment import Environment
from tests.support.built_targets import ref

pytestmark = [pytest.mark.e2e, pytest.mark.part("images")]

MINUTE = 60  # seconds
HOSTS = {"algo-1": "127.0.0.2", "algo-2": "127.0.0.3"}
ADD_UP = """
import argparse, json, os, torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int)
parser.add_argument("--fail", default="")
given = parser.parse_args()
dist.init_process_group("gloo")
rank = dist.get_rank()
if given.fail == os.environ["SM_CURRENT_HOST"]:
    raise ValueError(f"no batch for rank {rank}")
total = torch.full((given.size,), float(rank + 1))
dist.all_reduce(total)
told = {"rank": rank, "world": dist.get_world_size(), "total": total.tolist(), "environment": dict(os.environ)}
with open(os.environ["SM_MODEL_DIR"] + f"/rank-{rank}.json", "w") as file:
    json.dump(told, file)
dist.destroy_process_group()
"""
SAVE = """
import os, signal, sys, time

def save(*_):
    time.sleep(33)  # longer than torchrun itself would give
    open(os.environ["SM_MODEL_DIR"] + "/saved", "w").close()
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("training", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    built = ref("--target", "sagemaker-efa-pytorch")
    yield built
    docker("image", "rm", built)


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    """Return a docker command against the engine of the tests; its two outputs as one."""
    return subprocess.run(
        ["docker", *words],
        env=engines.ensure().environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=5 * MINUTE,
    )


Start = Callable[..., str]


@pytest.fixture
def start(image: str, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a host's container and returns its name."""
    lines: list[str] = []

    def run(current: str, program: str, hosts: list[str], **arguments: str) -> str:
        ml = tmp_path / current
        for folder in ("input/config", "input/data/training", "code", "model", "output"):
            (ml / folder).mkdir(parents=True)
        (ml / "code" / "job.py").write_text(program)
        resources = {"current_host": current, "hosts": hosts, "network_interface_name": "lo"}
        settings = {"sagemaker_program": '"job.py"', "sagemaker_submit_directory": '"/opt/ml/code"', **arguments}
        files = {"resourceconfig": resources, "hyperparameters": settings, "inputdataconfig": {"training": {}}}
        for name, content in files.items():
            (ml / "input" / "config" / f"{name}.json").write_text(json.dumps(content))
        name = f"{current}-{uuid.uuid4().hex[:8]}"
        names = [f"--add-host={host}:{address}" for host, address in HOSTS.items()]
        network = [f"--network=container:{lines[0]}"] if lines else ["--network=none", "--hostname=algo-1", *names]
        # As SageMaker does it: `docker run IMAGE train`.
        done = docker("run", "--detach", f"--name={name}", f"--volume={ml}:/opt/ml", *network, image, "train")
        assert done.returncode == 0, done.stdout
        lines.append(name)
        return name

    yield run
    docker("rm", "--force", *lines)


def ended(name: str) -> tuple[int, str]:
    """Return the exit code of a container, once it has ended, and its log."""
    done = docker("wait", name)
    return int(done.stdout), docker("logs", name).stdout


def test_two_hosts_add_up(start: Start, tmp_path: Path) -> None:
    names = [start(host, ADD_UP, ["algo-2", "algo-1"], size="3") for host in HOSTS]
    for name in names:
        code, log = ended(name)
        assert code == 0, log
    variables = yaml_file.load(paths.FACTS / "environment.yaml", Environment).variables.values()
    harmful = [row for row in variables if row.effect == "harmful" and not row.image_only]
    for rank, host in enumerate(HOSTS):
        data = json.loads((tmp_path / host / "model" / f"rank-{rank}.json").read_text())
        environment = data["environment"]
        assert (data["rank"], data["world"], data["total"]) == (rank, 2, [3.0, 3.0, 3.0])
        assert environment["MASTER_ADDR"] == "algo-1"
        assert json.loads(environment["SM_HOSTS"]) == ["algo-1", "algo-2"]
        assert environment["SM_CURRENT_HOST"] == host
        assert environment["SM_NUM_GPUS"] == "0"
        assert environment["SM_CHANNEL_TRAINING"] == "/opt/ml/input/data/training"
        assert environment["NCCL_NET"] == "Libfabric"
        assert [row.name for row in harmful if row.applies_to(environment, "efa", {})] == []
        assert not (tmp_path / host / "output" / "failure").exists()


def test_a_rank_that_fails_ends_both_hosts_and_says_why(start: Start, tmp_path: Path) -> None:
    names = [start(host, ADD_UP, list(HOSTS), size="3", fail="algo-2") for host in HOSTS]
    for name in names:
        code, log = ended(name)
        assert code == 1, log
    failure = (tmp_path / "algo-2" / "output" / "failure").read_text()
    assert failure.startswith("rank 1 ended with 1: ValueError: no batch for rank 1\nTraceback")
    assert len(failure) <= 1024
    assert (tmp_path / "algo-1" / "output" / "failure").read_text().startswith("rank 0 ended with ")


def test_the_exit_code_is_the_programs(start: Start, tmp_path: Path) -> None:
    exit_code, log = ended(start("algo-1", "import os; os.kill(os.getpid(), 9)", ["algo-1"]))
    assert exit_code == 137, log
    assert (tmp_path / "algo-1" / "output" / "failure").read_text().startswith("rank 0 ended with")


def test_a_job_that_is_stopped_has_the_time_to_save(start: Start, tmp_path: Path) -> None:
    """SageMaker sends SIGTERM, and SIGKILL two minutes later."""
    name = start("algo-1", SAVE, ["algo-1"])
    reading = subprocess.Popen(
        ["docker", "logs", "--follow", name], env=engines.ensure().environ(), stdout=subprocess.PIPE, text=True
    )
    assert reading.stdout
    assert reading.stdout.readline() == "training\n"
    docker("stop", "--time=120", name)
    reading.communicate(timeout=MINUTE)
    code, log = ended(name)
    assert code == 0, log
    assert (tmp_path / "algo-1" / "model" / "saved").exists()
