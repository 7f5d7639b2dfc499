"""SkyPilot's own reading of a generated task; its large package is an option."""

import os
import subprocess
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.support import job_parts as jobs

pytestmark = [pytest.mark.e2e, pytest.mark.part("engine"), pytest.mark.exhaustive]

READ = """
import sys, sky
from sky.utils import yaml_utils
config = yaml_utils.read_yaml(sys.argv[1])
task = sky.Task.from_yaml_config(config, secrets_overrides=[(name, "x") for name in config.get("secrets", {})])
(asked,) = task.resources
print(task.num_nodes, asked.accelerators, asked.network_tier.value, *asked.image_id.values(), sorted(task.envs))
print("service", task.service and (task.service.readiness_path, task.service.min_replicas), asked.ports)
print("told", task.workdir, sorted(task.secrets), sorted(task.storage_mounts), asked.job_recovery)
"""


def read(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Return what SkyPilot makes of a task; it keeps its state in a folder of the test."""
    (tmp_path / "job.yaml").write_text(text)
    uv = find_uv_bin()
    cache = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    python = (uv, "run", "--no-project", "--with", "skypilot==0.14.1", "python", "-c")
    command = [*python, READ, str(tmp_path / "job.yaml")]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path), "UV_CACHE_DIR": cache}
    )


@pytest.mark.parametrize("starter", ["mpirun", "torchrun"])
def test_skypilot_takes_the_task(tmp_path: Path, starter: str) -> None:
    done = read(tmp_path, jobs.files(jobs.job("skypilot", "efa", starter))["job.yaml"])
    assert done.returncode == 0, done.stderr
    for words in ("2 {'H100': 8} best", f"docker:{jobs.IMAGE}", "'USE_EFA'"):
        assert words in done.stdout


def test_skypilot_takes_all_that_a_job_can_be_told(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    settings = jobs.everything("skypilot", code)
    done = read(tmp_path, jobs.files(jobs.job("skypilot", "efa", "torchrun", settings=settings))["job.yaml"])
    assert done.returncode == 0, done.stderr
    printed = next(line for line in done.stdout.splitlines() if line.startswith("told"))
    assert "told code" in printed or f"{tmp_path}/code" in printed
    assert "['TOKEN'] ['/bucket']" in printed
    assert "'max_restarts_on_errors': 3" in printed


def test_skypilot_takes_a_service(tmp_path: Path) -> None:
    job = jobs.job("skypilot", "efa", "torchrun", parameters={"port": "30000", "replicas": "2"})
    done = read(tmp_path, jobs.files(job)["job.yaml"])
    assert done.returncode == 0, done.stderr
    assert "service ('/health', 2) ['30000']" in done.stdout


def test_skypilot_takes_a_server_in_parts(tmp_path: Path) -> None:
    done = read(tmp_path, jobs.files(jobs.server(launcher="skypilot"))["job.yaml"])
    assert done.returncode == 0, done.stderr
    assert "5 {'H100': 8} best" in done.stdout
    assert "service ('/health', 1) ['8000']" in done.stdout


def test_skypilot_refuses_what_is_wrong(tmp_path: Path) -> None:
    text = jobs.files(jobs.job("skypilot", "efa", "mpirun"))["job.yaml"]
    done = read(tmp_path, text.replace("network_tier: best", "network_tier: bests"))
    assert "Invalid network_tier" in done.stderr
