"""`invoke job.run` with Docker on two machines, over a real ssh to this one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.core.paths import PROJECT
from rdma_images.jobs.write import create
from tests.e2e import unpacked
from tests.support import job_parts as jobs

pytestmark = [pytest.mark.e2e, pytest.mark.part("ssh"), unpacked.needs]

START = Path(__file__).parent / "ssh.sh"
PACKAGES = ("openssh-server", "openssh-client", "libwrap0")
# A container is a file with its name; a second one of the same name, on the other "machine", is another.
DOCKER = """#!/bin/bash
echo "$*" >> FOLDER/calls
case $1 in
  run) echo "rank of $*"; JOB ;;
  container) [ -e "FOLDER/$3" ] ;;
esac
"""


@pytest.mark.parametrize(
    ("job", "limit", "ending", "exit_code"),
    [("true", "120s", "succeeded", 3), ("false", "120s", "failed", 1), ("sleep 60", "12s", "late", 1)],
)
def test_containers_on_two_machines(tmp_path: Path, job: str, limit: str, ending: str, exit_code: int) -> None:
    """Each rank has a log, and no container is left, also after the time limit."""
    written_job, folder = create.write_job(
        jobs.job_request("docker", "efa", "torchrun", name="j"), jobs.load_project(), str(tmp_path / "j")
    )
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.write_text(DOCKER.replace("FOLDER", str(tmp_path)).replace("JOB", job))
    docker.chmod(0o755)
    tree = unpacked.tree("ssh", PACKAGES)
    command = [sys.executable, "-m", "invoke", "job.run", str(folder), "--json", "--timeout", limit]
    start = ["unshare", "--mount", "--net", "bash", *map(str, (START, tree, tmp_path)), *command]
    done = subprocess.run(start, cwd=PROJECT, capture_output=True, text=True, timeout=300)
    (run_folder,) = (folder / "runs").iterdir()
    (entry,) = json.loads((run_folder / "run.json").read_text())["submissions"]
    assert (entry["ending"], entry["cleanup"], done.returncode) == (ending, "removed", exit_code), done.stderr
    logs = {path.name: path.read_text() for path in (run_folder / "logs").iterdir()}
    assert {f"{written_job.name}-0.log", f"{written_job.name}-1.log"} <= set(logs)
    assert all(f"--name=j-{entry['tag']}" in logs[f"{written_job.name}-{rank}.log"] for rank in (0, 1))
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls.count(f"rm --force j-{entry['tag']}") >= 2
