"""What the generated scripts call, word by word: run with programs in the path that say how they were called."""

import contextlib
import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rdma_images.jobs.write.job import Job
from rdma_images.jobs.write.work import Work
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
PROGRAM = """#!/usr/bin/env python3
import json, os, sys
with open("CALLS.json", "a") as calls:
    calls.write(json.dumps([os.path.basename(sys.argv[0]), sys.argv[1:], dict(os.environ)]) + "\\n")
"""


@pytest.fixture(name="path")
def programs(tmp_path: Path) -> str:
    """Return a PATH on which ssh, docker, torchrun and mpirun say how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    texts = {"ssh": SSH, "docker": DOCKER, "torchrun": PROGRAM, "mpirun": PROGRAM, "arena": PROGRAM}
    for name, text in texts.items():
        (folder / name).write_text(text.replace("CALLS", str(tmp_path / "calls")))
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def run(tmp_path: Path, path: str, job: Job, name: str) -> tuple[list[Any], str, str]:
    """Run a file of a job; returns the calls of torchrun, mpirun and arena, those of ssh and docker, and the output."""
    script = jobs.files(replace(job, node_check=False))[name]
    script = script.replace("/root/.ssh", str(tmp_path / "ssh")).replace("/tmp/nccl", str(tmp_path / "nccl"))
    if job.mpirun:
        script = script.replace(job.mpirun, "mpirun")
    (tmp_path / "ssh").mkdir()
    (tmp_path / "nccl").mkdir()
    (tmp_path / "nccl" / "host.1.log").write_text("a log of NCCL\n")
    (tmp_path / name).write_text(script)
    environment = {**os.environ, "PATH": path}
    completed = subprocess.run(["bash", name], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    calls = [json.loads(line) for line in (tmp_path / "calls.json").read_text().splitlines()]
    docker_calls = tmp_path / "calls"
    return calls, docker_calls.read_text() if docker_calls.exists() else "", completed.stdout


def test_torchrun_on_one_machine(tmp_path: Path, path: str) -> None:
    job = jobs.job("docker", "efa", "torchrun", nodes=1, gpus=2, parameters={}, tcp=True)
    ((_, words, environment),), docker_calls, out = run(tmp_path, path, job, "run.sh")
    assert words[:3] == ["--nnodes=1", "--nproc-per-node=2", "--node-rank=0"]
    assert words[-3:] == list(jobs.SCRIPT)
    assert environment["NCCL_NET"] == "Socket"
    for option in ("--gpus=2", "--device=/dev/infiniband", "--cap-add=IPC_LOCK", "memlock=-1:-1", jobs.IMAGE):
        assert option in docker_calls
    assert "a log of NCCL" in out


def test_torchrun_on_two_machines(tmp_path: Path, path: str) -> None:
    job = jobs.job("docker", "efa", "torchrun")
    calls, docker_calls, _ = run(tmp_path, path, job, "run.sh")
    assert len(calls) == 2
    assert {words[2] for _, words, _ in calls} == {"--node-rank=0", "--node-rank=1"}
    for _, words, environment in calls:
        assert words[3] == "--master-addr=one.example"
        assert words[-3:] == list(jobs.SCRIPT)
        assert environment["NCCL_SOCKET_IFNAME"].startswith("^lo,docker")
    assert {"ssh one", "ssh two"} <= set(docker_calls.splitlines())
    assert docker_calls.count("docker rm --force") == 2
    assert "--network=host" in docker_calls
    # Both are this machine, with one folder of logs, and the first that sees a log shows it.
    assert any("a log of NCCL" in file.read_text() for file in tmp_path.glob(f"{job.name}-?.log"))


def test_mpirun_on_two_machines(tmp_path: Path, path: str) -> None:
    command = ("/opt/nccl-tests/bin/all_reduce_perf", "-b", "it's 8")
    job = jobs.job("docker", "efa", "mpirun", command=command)
    ((_, ranks, _), (_, logs, _)), docker_calls, _ = run(tmp_path, path, job, "run.sh")
    assert ranks[ranks.index("-np") + 1] == "16"
    assert ranks[ranks.index("--host") + 1] == "one.example:8,two.example:8"
    assert ranks[ranks.index("plm_rsh_args") + 1].startswith("-p 2222 ")
    assert ranks[-3:] == list(command)
    handed = {ranks[index + 1] for index, word in enumerate(ranks) if word == "-x"}
    assert handed == set(job.variables)
    assert "NCCL_NET" in handed
    assert logs[logs.index("-np") + 1] == "2"
    assert docker_calls.count("docker run") == docker_calls.count("docker rm") == 2
    assert "PRIVATE KEY" in (tmp_path / "ssh" / "id_ed25519").read_text()


def test_mpirun_checks_each_node_before_the_ranks(tmp_path: Path, path: str) -> None:
    """One process on each node, with the ranks' variables, told the first node; a check that fails is the end."""
    job = jobs.job("docker", "efa", "mpirun")
    script = jobs.files(job)["run.sh"].replace("/root/.ssh", str(tmp_path / "ssh")).replace(job.mpirun, "mpirun")
    (tmp_path / "ssh").mkdir()
    (tmp_path / "run.sh").write_text(script)
    environment = {**os.environ, "PATH": path}
    subprocess.run(["bash", "run.sh"], cwd=tmp_path, env=environment, capture_output=True, check=True)
    calls = [json.loads(line)[1] for line in (tmp_path / "calls.json").read_text().splitlines()]
    check, ranks, _ = calls
    assert [check[check.index(option) + 1] for option in ("-np", "-N", "--host")] == [
        "2",
        "1",
        ranks[ranks.index("--host") + 1],
    ]
    assert [word for word in check if word in job.variable_names] == [
        word for word in ranks if word in job.variable_names
    ]
    assert check[-2:] == ["check", "one.example"]
    (tmp_path / "bin" / "mpirun").write_text(f"#!/bin/sh\necho >> {tmp_path}/started; exit 1\n")
    assert subprocess.run(["bash", "run.sh"], cwd=tmp_path, env=environment, capture_output=True).returncode == 1
    assert (tmp_path / "started").read_text() == "\n"


def test_arena_is_called_with_whole_words(tmp_path: Path, path: str) -> None:
    job = jobs.job("arena", "erdma", "torchrun")
    ((_, words, _),), _, _ = run(tmp_path, path, job, "submit.sh")
    assert words[:2] == ["submit", "pytorch"]
    assert "--env=NCCL_IB_ADDR_RANGE=10.0.0.0/8" in words
    assert "--workers=2" in words
    ((_, ranks, _),) = _started(tmp_path, path, words[-1], RANK="1", MASTER_ADDR="one")
    assert ranks[2:4] == ["--node-rank=1", "--master-addr=one"]
    assert ranks[-3:] == list(jobs.SCRIPT)


@pytest.mark.parametrize(
    ("launcher", "variables"),
    [
        ("pytorchjob", {"RANK": "1", "MASTER_ADDR": "one"}),
        ("trainjob", {"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "one"}),
    ],
)
def test_a_pod_starts_torchrun(tmp_path: Path, path: str, launcher: str, variables: dict[str, str]) -> None:
    template = jobs.pods(jobs.job(launcher, "efa", "torchrun", node_check=False))[-1]
    *_, script = template["spec"]["containers"][0]["command"]
    ((_, words, _),) = _started(tmp_path, path, script, **variables)
    assert words[2:4] == ["--node-rank=1", "--master-addr=one"]
    assert words[-3:] == list(jobs.SCRIPT)


def test_a_pod_of_kuberay_starts_its_ray_and_the_head_keeps_the_command(tmp_path: Path) -> None:
    pods = jobs.pods(jobs.job("rayjob", "efa", "torchrun", node_check=False))
    (head, worker) = [pod["spec"]["containers"][0] for pod in pods if pod["spec"]["containers"][0]["name"] == "ray"]
    for name in ("ray", "python3"):
        (tmp_path / name).write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@" > {tmp_path}/called\n')
        (tmp_path / name).chmod(0o755)
    for container, start in ((head, "ray start --head --block"), (worker, "ray start --block")):
        script = container["command"][2].replace("/tmp/", f"{tmp_path}/")
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBERAY_GEN_RAY_START_CMD": f"{start} "}
        subprocess.run(["sh", "-c", script], env=environment, check=True, stdout=subprocess.DEVNULL, timeout=60)
        assert (tmp_path / "called").read_text().split() == start.split()
        entrypoint = tmp_path / "entrypoint.sh"
        if container is head:
            subprocess.run(["sh", entrypoint], env=environment, check=True, timeout=60)
            assert (tmp_path / "called").read_text().splitlines() == ["python3", *jobs.SCRIPT]
            entrypoint.unlink()
        assert not entrypoint.exists()


@pytest.mark.parametrize(("tcp", "network"), [(False, "Libfabric"), (True, "Socket")])
def test_skypilot_starts_torchrun(tmp_path: Path, path: str, tcp: bool, network: str) -> None:
    task = yaml.safe_load(jobs.files(jobs.job("skypilot", "efa", "torchrun", tcp=tcp, node_check=False))["job.yaml"])
    variables = {**task["envs"], "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}
    ((_, words, environment),) = _started(tmp_path, path, task["run"], **variables)
    assert words[2:4] == ["--node-rank=1", "--master-addr=10.0.0.1"]
    assert words[-3:] == list(jobs.SCRIPT)
    assert environment["NCCL_NET"] == network


def _started(tmp_path: Path, path: str, script: str, **variables: str) -> list[Any]:
    """Return the calls of a container's start."""
    (tmp_path / "calls.json").unlink(missing_ok=True)
    script = script.replace("/tmp/nccl", str(tmp_path / "nccl"))
    subprocess.run(["sh", "-c", script], env={"PATH": path, **variables}, check=True, capture_output=True)
    return [json.loads(line) for line in (tmp_path / "calls.json").read_text().splitlines()]


def test_a_pod_leaves_commands_and_variables_as_they_are_told() -> None:
    """A kubelet replaces $$ and $(NAME) in both: the commands that are written have neither, but for its own escape."""
    command, value = ("train.py", "--pw", "a$$b", "--x", "$(A)"), "a$$b $(A) $HOME"
    job = jobs.job("pytorchjob", "efa", "torchrun", command=command, work=Work(env={"A": "1", "B": value}))
    container = jobs.pods(job)[0]["spec"]["containers"][0]
    (text,) = (word for word in container["command"] if "torchrun" in word)
    variables = {row["name"]: row.get("value", "") for row in container["env"]}
    assert expand(variables["B"], variables) == value
    assert "--pw 'a$$b' --x '$(A)'" in expand(text, variables)
    before = text.partition("train.py")[0]
    assert expand(before, variables) == before


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_what_follows_the_logs_of_nccl_ends_with_a_shell_that_ends_at_once(tmp_path: Path, shell: str) -> None:
    """The follower is made to start after its parent's end, when its parent is process 1."""
    containers = [pod["spec"]["containers"][0] for pod in jobs.pods(jobs.job("rayjob", "efa", "torchrun"))]
    command = next(container["command"] for container in containers if container["name"] == "ray")
    text = expand(command[-1], {}).replace("/tmp/nccl", str(tmp_path / "nccl"))
    start, stop = text.rindex("mkdir -p", 0, text.index("follower=$!")), text.index("follower=$!")
    (tmp_path / "sh").write_text('#!/bin/dash\nsleep 0.3\nexec /bin/sh "$@"\n')
    (tmp_path / "sh").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([shell, "-c", text[start:stop]], env=environment, check=True, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while followers(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not followers(tmp_path)


def followers(folder: Path) -> list[int]:
    """Return the processes whose command line has a folder."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                processes.append(int(path.parent.name))
    return processes


def test_the_logs_of_nccl_are_printed_while_a_pod_runs(tmp_path: Path) -> None:
    container = jobs.pods(jobs.job("pytorchjob", "efa", "torchrun", node_check=False))[0]["spec"]["containers"][0]
    text = expand(container["command"][-1], {}).replace("/tmp/nccl", str(tmp_path / "nccl"))
    start, stop = text.index("mkdir -p"), text.index("follower=$!")
    log = tmp_path / "nccl" / "a.log"
    script = f"{text[start:stop]}follower=$!\necho NCCL INFO > {log}; sleep 4; kill $follower; wait $follower"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert "NCCL INFO" in done.stdout
