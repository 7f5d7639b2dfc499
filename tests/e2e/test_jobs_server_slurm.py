"""A server in parts on a real Slurm, by the written script, with SGLang's real router; its servers are stand-ins."""

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from rdma_images.jobs.write import create
from rdma_images.jobs.write.job_settings import JobSettings
from rdma_images.jobs.write.jobs_file import RoleRequest
from tests.e2e import slurm_parts, unpacked
from tests.e2e.server_parts import SGLANG, image
from tests.support import job_parts as jobs

pytestmark = [pytest.mark.e2e, pytest.mark.part("slurm"), unpacked.needs]

# Without pyxis, which Debian has not: the container is this machine.
SRUN = """#!/bin/bash
for word; do [[ $word == --*container-* ]] || words+=("$word"); done
exec /usr/bin/srun "${words[@]}"
"""
HOSTS = "127.0.0.1 localhost\n127.0.0.2 n1\n127.0.0.3 n2\n"


def ask(address: str, body: Any = None, method: str = "") -> Any:
    """Return what answers at an address, as JSON; None where nothing does."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"http://{address}", data, {"Content-Type": "application/json"})
    request.method = method or request.get_method()
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())
    except OSError:
        return None


def write(folder: Path) -> None:
    """Write the job into `folder`, and beside it what it finds in the place of the image."""
    (folder / "code" / "sglang").mkdir(parents=True)
    (folder / "code" / "sglang" / "launch_server.py").write_text(SGLANG)
    (folder / "bin").mkdir()
    (folder / "bin" / "srun").write_text(SRUN)
    (folder / "bin" / "srun").chmod(0o755)
    (folder / "hosts").write_text(HOSTS)
    request = jobs.job_request(
        "slurm",
        "efa",
        "torchrun",
        target="efa-sglang",
        name="serve",
        nodes=1,
        command=(),
        model="MODEL",
        preflight=False,  # there is no adapter
        settings=JobSettings(env={"PYTHONPATH": str(folder / "code")}),
        roles={"decode": RoleRequest(env={"LOAD_SECONDS": "4"})},
    )
    create.write_job(request, jobs.load_project(), str(folder / "job"))


def read(log: Path, text: str) -> None:
    """Wait until a log has the text."""
    deadline = time.monotonic() + 90
    while not log.exists() or text not in log.read_text():
        assert time.monotonic() < deadline, log.exists() and log.read_text()
        time.sleep(0.2)


@pytest.mark.parametrize(("role", "code", "result"), [("decode", 7, 7), ("prefill", 0, 1)])
def test_the_router_waits_for_both_and_a_part_that_ends_ends_the_job(
    role: str, code: int, result: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    log = tmp_path / "job" / "serve-1.log"
    path = image("sglang-router", "sglang-router==0.3.2")
    with slurm_parts.cluster(tmp_path / "state", hosts=str(tmp_path / "hosts")) as programs:
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{programs}:{path}")
        subprocess.run(["sbatch", "job.sbatch"], cwd=tmp_path / "job", check=True)
        read(log, "prefill is ready at http://n1:8001")
        assert ask("127.0.0.3:8001/") is None  # which still loads
        assert ask("127.0.0.2:8000/readiness") is None
        read(log, "router is ready at http://n1:8000")
        assert ask("127.0.0.3:8001/")["mode"] == "decode"
        assert ask("127.0.0.2:8000/readiness")["status"] == "ready"
        question = {"text": "a question", "sampling_params": {"max_new_tokens": 1}}
        answer = ask("127.0.0.2:8000/generate", question)["meta_info"]
        assert (answer["mode"], answer["backend"]) == ("decode", "LIBFABRIC")
        node, address = {"prefill": ("n1", "127.0.0.2"), "decode": ("n2", "127.0.0.3")}[role]
        ask(f"{address}:8001/{code}", method="DELETE")
        read(log, f"{role} on {node} has ended, and the server with it: exit code {result}")
        shown = wait_for_end()
        assert f"ExitCode={result}:0" in shown
        assert [ask(f"{host}:8001/") for host in ("127.0.0.2", "127.0.0.3")] == [None, None]


def wait_for_end() -> str:
    """Return what Slurm says of the job once it has ended."""
    deadline = time.monotonic() + 60
    while "JobState=FAILED" not in (
        shown := subprocess.run(["scontrol", "show", "job", "1"], capture_output=True, text=True).stdout
    ):
        assert time.monotonic() < deadline, shown
        time.sleep(0.2)
    return shown
