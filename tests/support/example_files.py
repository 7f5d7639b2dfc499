"""The files that the examples of `--help` name, in a copy of the checkout.

`python -m tests.support.example_files` writes them into the current folder, which is such a copy.
"""

import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from rdma_images import facts
from rdma_images.core import paths
from rdma_images.core.image import BuildRecord, Image
from rdma_images.core.step_files import BUILD_FILE
from rdma_images.jobs.results import from_logs, run_files
from rdma_images.plan import matrix, planner
from rdma_images.report import report_files as reports
from tests.support import published_image, results_parts, scan_parts
from tests.support.bill_parts import CONTENTS, PACKAGES
from tests.support.case_parts import recorded, report_on

DATA = paths.PROJECT / "tests" / "data"
DIGEST = scan_parts.DIGEST


def write(folder: Path) -> None:
    """Write what examples name below `folder`."""
    (pytorch,) = planner.plan(matrix.load(), facts.load(), ["efa-pytorch"]).images
    (nccl_tests,) = planner.plan(matrix.load(), facts.load(), ["efa-nccl-tests"]).images
    _record(pytorch, DIGEST)
    _record(nccl_tests, f"sha256:{'b' * 64}")
    case = recorded()
    measured = case.measured.model_copy(update={"packages": PACKAGES, "contents": CONTENTS})
    report = report_on(pytorch, facts=case.model_copy(update={"measured": measured}), digest=DIGEST)
    reports.write(report, paths.image_folder(pytorch.id))
    _jobs(folder)
    _results(folder)
    scan = scan_parts.trivy()
    scan["metadata"]["timestamp"] = datetime.now(UTC).isoformat()  # a policy refuses a scan that is a week old
    scan_parts.write_report(folder, scan, "trivy.cdx.json")
    (folder / "policy.yaml").write_text("grace-days: {high: 28}\n")
    source = folder.parent / "nccl" / "src"
    source.mkdir(parents=True)
    (source / "init.cc").write_text('NCCL_PARAM(GroupLaunch, "GROUP_LAUNCH", 0);\n')


def _record(image: Image, digest: str) -> None:
    """Write what a build and a publication leave of an image."""
    paths.image_folder(image.id).mkdir(parents=True)
    BUILD_FILE.write(image.id, BuildRecord(image.id, "r", digest, "sha256:2", (), "2026-11-21T08:00:00+00:00", 1.0))
    published_image.write_publication(image, team=f"registry.example/{image.target}@{digest}")


def _jobs(folder: Path) -> None:
    golden = DATA / "golden" / "jobs"
    shutil.copy(folder / "jobs.example.yaml", folder / "jobs.yaml")
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text("")
    shutil.copy(golden / "mpijob-efa-mpirun" / "mpijob.yaml", folder / "job.yaml")
    shutil.copy(golden / "slurm-efa-torchrun" / "job.sbatch", folder / "job.sbatch")
    shutil.copy(golden / "sagemaker-efa-torchrun" / "request.json", folder / "request.json")


def _results(folder: Path) -> None:
    shutil.copy(DATA / "nccl-logs" / "p2p-default.log", folder / "train.log")
    runs = folder / "build" / "jobs"
    job = shlex.split("job --target efa-nccl-tests --launcher mpijob --instance p5.48xlarge --nodes 2")
    subprocess.run([sys.executable, "-m", "invoke", *job], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    for logs in (
        runs / "efa-nccl-tests-p5-48xlarge-2" / "runs" / "20261122T060000Z" / "logs",
        runs / "before" / "runs" / "20261121T060000Z" / "logs",
        runs / "after" / "runs" / "20261122T060000Z" / "logs",
        folder / "logs",
    ):
        results_parts.write(logs)
    results_parts.write(folder / "logs-over-tcp", results_parts.TCP)
    measured = run_files.RESULT.text(from_logs.read_job_result([folder / "logs"]))
    for name in ("before.json", "after.json"):
        (folder / name).write_text(measured)
    ranks = sorted((folder / "logs").iterdir(), key=lambda log: int(log.stem))
    for number in (0, 1):  # a log of each node
        text = "".join(log.read_text() for log in ranks[8 * number : 8 * number + 8])
        (folder / f"worker-{number}.log").write_text(text)


if __name__ == "__main__":
    write(Path.cwd())
