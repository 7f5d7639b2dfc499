"""What the generated scripts call, word by word: run with programs in the path that say how they were called."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rdma_images.jobs.write.job import Job
from rdma_images.jobs.write.job_settings import CODE, Code, JobSettings
from tests.support import job_parts as jobs
from tests.support.kubelet import expand

# ssh runs the command on this machine; docker runs what it would run in the container, with the variables that it has.
SSH = """#!/bin/bash
if [ "$1" = -G ]; then echo "hostname $2.example"; exit; fi
echo "ssh $3" >> CALLS
exec sh -c "$4"
"""
DOCKER = """#!/bin/bash
printf '%q ' docker "$@" >> CALLS; echo >> CALLS
case $1 in
  run)
    shift
    while [ "${1#-}" != "$1" ]; do
      case $1 in --env=*) export "${1#--env=}" ;; --detach) exit 0 ;; esac
      shift
    done
    shift
    exec "$@"
    ;;
  exec)
    while [ "$1" != sh ]; do shift; done
    exec "$@"
    ;;
  container) exit 1 ;;
esac
"""
PREFLIGHT = """#!/bin/bash
echo "rdma-preflight $*" >> CALLS
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
PROGRAM = """#!/usr/bin/env python3
import json, os, sys
with open("CALLS.json", "a") as calls:
    calls.write(json.dumps([os.path.basename(sys.argv[0]), sys.argv[1:], dict(os.environ)]) + "\\n")
"""


@pytest.fixture(name="path")
def programs(tmp_path: Path) -> str:
    """Return a PATH on which the programs of a job say how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    texts = {"ssh": SSH, "docker": DOCKER, "rdma-preflight": PREFLIGHT} | dict.fromkeys(
        ("torchrun", "mpirun", "arena"), PROGRAM
    )
    for name, text in texts.items():
        (folder / name).write_text(text.replace("CALLS", str(tmp_path / "calls")))
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def run(tmp_path: Path, path: str, job: Job, name: str) -> tuple[list[Any], str]:
    """Run a file of a job; returns the calls of torchrun, mpirun and arena, and those of ssh and docker."""
    script = jobs.files(job)[name]
    script = script.replace("/root/.ssh", str(tmp_path / "ssh"))
    if job.mpirun:
        script = script.replace(job.mpirun, "mpirun")
    (tmp_path / "ssh").mkdir()
    (tmp_path / name).write_text(script)
    environment = {**os.environ, "PATH": path}
    completed = subprocess.run(["bash", name], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    calls = [json.loads(line) for line in (tmp_path / "calls.json").read_text().splitlines()]
    docker_calls = tmp_path / "calls"
    return calls, docker_calls.read_text() if docker_calls.exists() else ""


def test_torchrun_on_one_machine(tmp_path: Path, path: str) -> None:
    job = jobs.job("docker", "efa", "torchrun", nodes=1, gpus=2, parameters={}, tcp=True)
    ((_, words, environment),), docker_calls = run(tmp_path, path, job, "run.sh")
    assert words[:3] == ["--nnodes=1", "--nproc-per-node=2", "--node-rank=0"]
    assert words[-3:] == list(jobs.SCRIPT)
    assert environment["NCCL_NET"] == "Socket"
    for option in ("--gpus=2", "--device=/dev/infiniband", "--cap-add=IPC_LOCK", "memlock=-1:-1", jobs.IMAGE):
        assert option in docker_calls


def test_torchrun_on_two_machines(tmp_path: Path, path: str) -> None:
    job = jobs.job("docker", "efa", "torchrun")
    calls, docker_calls = run(tmp_path, path, job, "run.sh")
    assert len(calls) == 2
    assert {words[2] for _, words, _ in calls} == {"--node-rank=0", "--node-rank=1"}
    for _, words, environment in calls:
        assert words[3] == "--master-addr=one.example"
        assert words[-3:] == list(jobs.SCRIPT)
        assert environment["NCCL_SOCKET_IFNAME"].startswith("^lo,docker")
    assert {"ssh one", "ssh two"} <= set(docker_calls.splitlines())
    assert docker_calls.count("docker rm --force") == 2
    assert "--network=host" in docker_calls


def test_mpirun_on_two_machines(tmp_path: Path, path: str) -> None:
    command = ("/opt/nccl-tests/bin/all_reduce_perf", "-b", "it's 8")
    job = jobs.job("docker", "efa", "mpirun", command=command)
    ((_, ranks, _),), docker_calls = run(tmp_path, path, job, "run.sh")
    assert ranks[ranks.index("-np") + 1] == "16"
    assert ranks[ranks.index("--host") + 1] == "one.example:8,two.example:8"
    assert ranks[ranks.index("plm_rsh_args") + 1].startswith("-p 2222 ")
    assert ranks[-3:] == list(command)
    handed = {ranks[index + 1] for index, word in enumerate(ranks) if word == "-x"}
    assert handed == {*job.variables, "MASTER_ADDR=one.example"}
    preflight = ranks.index("rdma-preflight")
    assert ranks[preflight : preflight + 3] == ["rdma-preflight", "--require", "efa"]
    assert ranks[-len(command) - 1] == "--"
    assert "NCCL_NET" in handed
    assert docker_calls.count("docker run") == docker_calls.count("docker rm") == 2
    assert "PRIVATE KEY" in (tmp_path / "ssh" / "id_ed25519").read_text()


def test_arena_is_called_with_whole_words(tmp_path: Path, path: str) -> None:
    job = jobs.job("arena", "erdma", "torchrun")
    ((_, words, _),), _ = run(tmp_path, path, job, "submit.sh")
    assert words[:2] == ["submit", "pytorch"]
    assert "--env=NCCL_IB_ADDR_RANGE=10.0.0.0/8" in words
    assert "--workers=2" in words
    ((_, ranks, _),) = _started(tmp_path, path, words[-1], RANK="1", MASTER_ADDR="one")
    assert ranks[2:4] == ["--node-rank=1", "--master-addr=one"]
    assert ranks[-3:] == list(jobs.SCRIPT)


@pytest.mark.parametrize(
    ("launcher", "keys"), [("mpijob", None), ("trainjob", "install -D -m 600 -t /root/.ssh /run/mpi-ssh/*\n")]
)
def test_ranks_of_mpirun_start_in_the_code_that_their_pods_alone_have(
    tmp_path: Path, path: str, launcher: str, keys: str | None
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    settings = JobSettings(code=Code(str(tmp_path / "code"), CODE))
    job = jobs.job(launcher, "efa", "mpirun", command=("/usr/bin/python3", "train.py"), settings=settings)
    (container,) = (
        pod["spec"]["containers"][0] for pod in jobs.pods(job) if "mpirun" in pod["spec"]["containers"][0]["command"][2]
    )
    assert "volumeMounts" not in container
    script = expand(container["command"][2], {}).replace(job.mpirun, "mpirun").replace(keys or "\0", "")
    hosts = tmp_path / "hosts"
    hosts.write_text("one slots=8\n")
    ((_, words, _),) = _started(tmp_path, path, script, OMPI_MCA_orte_default_hostfile=str(hosts))
    assert words[words.index("--wdir") + 1] == CODE
    assert words[words.index("--hostfile") + 1] == str(hosts)


def _started(tmp_path: Path, path: str, script: str, **variables: str) -> list[Any]:
    """Return the calls of a container's start."""
    (tmp_path / "calls.json").unlink(missing_ok=True)
    subprocess.run(["sh", "-c", script], env={"PATH": path, **variables}, check=True, capture_output=True)
    return [json.loads(line) for line in (tmp_path / "calls.json").read_text().splitlines()]
