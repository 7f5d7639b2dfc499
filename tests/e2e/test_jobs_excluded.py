"""A node that fails its check on a real Slurm: the next attempt runs without it."""

import os
import re
from pathlib import Path

import pytest

from rdma_images.jobs.run import job_run, record
from rdma_images.jobs.write import create
from rdma_images.jobs.write.work import Work
from tests.e2e import slurm_parts, unpacked
from tests.e2e.test_job_run_slurm import TORCHRUN
from tests.support import job_parts as jobs

pytestmark = [pytest.mark.e2e, unpacked.needs]

# Without a container, so that each task has the name of its node.
CONTAINER = re.compile(r"\"\$\{container\[@\]\}\" (.*?)sh -c '", re.DOTALL)
BROKEN = '[ "$SLURMD_NODENAME" != n1 ] || export NCCL_SOCKET_IFNAME=none9'


def test_a_bad_node_is_excluded_from_the_next_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "job"
    request = jobs.job_request(
        "slurm", "efa", "torchrun", name="measured", work=Work(restarts=2), command=("echo", "trained")
    )
    create.write_job(request, jobs.load_project(), str(folder))
    script = folder / "job.sbatch"
    text, changes = CONTAINER.subn(rf"\1sh -c '{BROKEN}\n", script.read_text())
    assert changes == 1
    script.write_text(text.replace("master=$(", "master=localhost WAS=$("))  # no name server knows the nodes' names
    torchrun = tmp_path / "bin" / "torchrun"
    torchrun.parent.mkdir()
    torchrun.write_text(TORCHRUN)
    torchrun.chmod(0o755)
    with slurm_parts.cluster(tmp_path / "slurm", nodes=3) as programs:
        monkeypatch.setenv("PATH", f"{programs}:{torchrun.parent}:{os.environ['PATH']}")
        run = job_run.run_job(folder, jobs.load_project(), job_run.JobRunOptions(limit=400), lambda _: None)
    (log,) = (run / "logs").glob("measured-*.log")
    assert record.load(run)[-1].how == "succeeded", log.read_text()
    assert "the nodes n1 are excluded: their check failed" in log.read_text()
    assert log.read_text().count(": trained") == 2
