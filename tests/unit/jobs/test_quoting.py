"""Commands and variables with quotes, `$` and other scripts, through the files of each launcher."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rdma_images.core.errors import RefusedError
from rdma_images.jobs.write.job import Job
from rdma_images.jobs.write.job_settings import JobSettings
from tests.support import job_parts as jobs
from tests.support.kubelet import expand

ODD = (
    *("--data=/my data/ünï", "a'b", 'c"d', "$HOME", "$(date)", "$$", "$(HOME)"),
    *("`x`", "\\n", "", "*", "#x", "{{ x }}", "{% x %}", "é😀", " before", "after ", "%h", "a: b", "!x", "- x"),
)
VARIABLES = {
    "QUOTES": 'it\'s "x" $HOME $(date) `y` \\ # ü😀',
    "BEFORE": " x",
    "SWITCH": "yes",
    "MAPPING": "a: b",
    "NONE": "",
}
PRINTS_ARGUMENTS = """#!/usr/bin/env python3
import json, os, sys
with open("CALLS", "w") as file:
    json.dump([sys.argv[1:], dict(os.environ)], file)
"""
# docker and srun take their options off, ssh what it needs for a host, and each starts the rest here.
DOCKER = """#!/bin/bash
[ "$1" = run ] || exit 0
shift
while :; do
  case $1 in --env=*) export "${1#--env=}"; shift ;; --*) shift ;; *) break ;; esac
done
shift
exec "$@"
"""
SRUN = """#!/bin/bash
while :; do case $1 in --*) shift ;; *) break ;; esac; done
[ "$1" = torchrun ] || set -- torchrun "$@"
exec "$@"
"""
SSH = """#!/bin/bash
if [ "$1" = -G ]; then echo "hostname $2"; exit; fi
shift 3
case $* in *"'container' 'inspect'"*) exit 1 ;; esac
exec sh -c "$*"
"""
PROGRAMS = {
    "torchrun": PRINTS_ARGUMENTS,
    "mpirun": PRINTS_ARGUMENTS,
    "docker": DOCKER,
    "srun": SRUN,
    "ssh": SSH,
    "scontrol": "#!/bin/sh\necho n0\n",
}
NODE = {
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    **{"RANK": "1", "MASTER_ADDR": "x", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "x", "LWS_WORKER_INDEX": "1"},
    **{"LWS_LEADER_ADDRESS": "x", "SKYPILOT_NODE_IPS": "x\n192.0.2.2\n"},
    **{"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "j", "SLURM_JOB_NODELIST": "n0"},
}


def pod_start(job: Job, _: Path) -> tuple[list[str], dict[str, str]]:
    pods = [pod["spec"]["containers"][0] for pod in jobs.pods(job)]
    container = next(pod for pod in pods if any(word in pod["command"][2] for word in ("torchrun", "--tag-output")))
    variables: dict[str, str] = {}
    for row in container["env"]:
        if "value" in row:
            variables[row["name"]] = expand(row["value"], variables)
    return ["sh", "-c", expand(container["command"][2], variables)], variables


def skypilot_start(job: Job, _: Path) -> tuple[list[str], dict[str, str]]:
    task = yaml.safe_load(jobs.files(job)["job.yaml"])
    return ["bash", "-c", task["run"]], task["envs"]


def sagemaker_start(job: Job, folder: Path) -> tuple[list[str], dict[str, str]]:
    request = json.loads(jobs.files(job)["request.json"])
    hosts = {"hosts": ["a", "b"], "current_host": "a", "network_interface_name": "eth0"}
    (folder / "input/config").mkdir(parents=True)
    (folder / "input/config/resourceconfig.json").write_text(json.dumps(hosts))
    image = request["AlgorithmSpecification"]
    words = [word.replace("/opt/ml", str(folder)) for word in image["ContainerArguments"]]
    return [*image["ContainerEntrypoint"], *words], request["Environment"]


def script_start(job: Job, _: Path) -> tuple[list[str], dict[str, str]]:
    name = {"docker": "run.sh", "slurm": "job.sbatch"}[job.launcher]
    return ["bash", "-c", jobs.files(job)[name]], {}


STARTS: Mapping[str, Any] = {"skypilot": skypilot_start, "sagemaker": sagemaker_start} | dict.fromkeys(
    ("docker", "slurm"), script_start
)


def cases() -> Iterator[tuple[str, str, int]]:
    """Yield launcher, starter and nodes, wherever they go together."""
    for launcher, fabric, starter in jobs.combinations():
        if fabric == "efa" and (launcher, starter) != ("docker", "mpirun"):
            yield from ((launcher, starter, nodes) for nodes in ((1, 2) if launcher == "docker" else (2,)))


@pytest.mark.parametrize(("launcher", "starter", "nodes"), list(cases()))
def test_ranks_get_each_word_and_variable_as_it_was_given(
    tmp_path: Path, launcher: str, starter: str, nodes: int
) -> None:
    command = ("train.py" if starter == "torchrun" else "/opt/train", *ODD)
    changes: dict[str, Any] = {"parameters": {}} if nodes == 1 else {}
    changes.update({"nodes": nodes, "preflight": False, "command": command, "settings": JobSettings(env=VARIABLES)})
    job = jobs.job(launcher, "efa", starter, **changes)
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text.replace("CALLS", str(tmp_path / "calls")))
        (tmp_path / name).chmod(0o755)
    words, variables = STARTS.get(launcher, pod_start)(job, tmp_path)
    replaced = {"install -D": "true", job.mpirun or "mpirun": "mpirun"}
    for old, new in replaced.items():
        words = [word.replace(old, new) for word in words]
    first = starter == "mpirun"  # mpirun runs on the first node alone
    environment = {
        **variables,
        **NODE,
        "SKYPILOT_NODE_RANK": "0" if first else "1",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": "/home/x",
    }
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (tmp_path / "calls").exists(), done.stderr
    arguments, rank_environment = json.loads((tmp_path / "calls").read_text())
    assert tuple(arguments[-len(command) :]) == command
    assert {name: rank_environment.get(name) for name in VARIABLES} == VARIABLES
    if starter == "torchrun" and launcher in ("pytorchjob", "trainjob", "leaderworkerset", "skypilot"):
        assert arguments[2:4] == ["--node-rank=1", "--master-addr=x"]


@pytest.mark.parametrize("value", ['"', "\\"])
def test_arena_takes_no_variable_that_ends_its_quotation_marks(value: str) -> None:
    job = jobs.job("arena", "erdma", "torchrun", settings=JobSettings(env={"A": f"x{value}"}))
    with pytest.raises(RefusedError, match="A has such a mark or a backslash"):
        jobs.files(job)
