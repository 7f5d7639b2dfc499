"""A real training of torch on a real Slurm: killed, requeued, resumed from a checkpoint."""

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images.jobs.run import run_job
from rdma_images.jobs.write import create, job_settings
from rdma_images.jobs.write.job_settings import Code, JobSettings
from tests.e2e import slurm_parts, training_parts, unpacked
from tests.support import job_parts as jobs

pytestmark = [pytest.mark.e2e, pytest.mark.part("slurm"), unpacked.needs]

SECRET = "a-secret-of-the-user"


@pytest.fixture(scope="module", name="bundle")
def _bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with training_parts.bundle(tmp_path_factory.mktemp("image") / "bundle") as folder:
        yield folder


@pytest.fixture(autouse=True)
def _slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with slurm_parts.cluster(tmp_path / "slurm") as programs:
        monkeypatch.setenv("PATH", training_parts.path_with(programs))
        monkeypatch.setenv("TOKEN", SECRET)
        yield


def training(folder: Path, bundle: Path, *command: str) -> Path:
    """Return the folder of a job with mount, code, checkpoints, a secret and restarts."""
    for name in ("src", "runs"):
        (folder / name).mkdir()
    (folder / "src" / "train.py").write_text(training_parts.TRAIN)
    part = JobSettings(
        mounts=(job_settings.parse_mount(f"{folder}/runs:/runs"),),
        code=Code(str(folder / "src"), job_settings.CODE),
        secrets={"TOKEN": "env:TOKEN"},
        checkpoints="/runs",
        restarts=3,
        time=3600,
    )
    parameters = {"runtime": "oci", "bundle": str(bundle)}
    request = jobs.job_request(
        "slurm",
        "efa",
        "torchrun",
        parameters=parameters,
        name="training",
        gpus=1,
        command=("train.py", *command),
        settings=part,
        preflight=False,
    )
    create.write_job(request, jobs.load_project(), str(folder / "job"))
    return folder / "job"


def printed(job: Path) -> str:
    (log,) = job.glob("runs/*/logs/training-*.log")
    return log.read_text()


def assert_no_secret_in_files(folder: Path) -> None:
    for path in (path for path in folder.rglob("*") if path.is_file()):
        assert SECRET not in path.read_text(errors="replace"), path


def test_after_a_killed_rank_a_killed_node_and_the_end_of_its_time_it_goes_on(tmp_path: Path, bundle: Path) -> None:
    """The signal of the time's end is sent by hand: Slurm sends it two minutes before the end of the job's hour."""
    job = training(tmp_path, bundle, "2=rank", "4=torchrun", "6=wait")

    def let_time_run_out() -> None:
        while not (tmp_path / "runs" / "failed-at-6").exists():
            time.sleep(0.2)
        subprocess.run(["scancel", "--batch", "--signal=USR1", "--name=training"], check=True)

    threading.Thread(target=let_time_run_out, daemon=True).start()
    run_job.run_job(job, jobs.load_project(), run_job.JobRunOptions(limit=1800), lambda _: None)
    lines = printed(job)
    for start in (0, 3, 5, 7):
        assert f"rank 1 of 2 begins at step {start}, token of {len(SECRET)}" in lines
    for attempt in (1, 2):
        assert re.search(rf"attempt {attempt}: exit code \d+; the job is queued again", lines)
    assert "attempt 3: its time ends; the job is queued again" in lines
    assert "rank 1 ends at step 8" in lines
    assert_no_secret_in_files(job)
