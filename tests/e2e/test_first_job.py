"""docs/guides/first-job.md, followed in a fresh folder on a real Slurm."""

import re
import subprocess
from pathlib import Path

import pytest

from rdma_images.core import paths
from tests.e2e import slurm_parts, training_parts, unpacked
from tests.support import wheel

pytestmark = [pytest.mark.e2e, pytest.mark.part("slurm"), unpacked.needs]

BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = {"python": "src/train.py", "yaml": "jobs.yaml"}


def test_the_guide_leads_from_an_empty_folder_to_a_judged_job(tmp_path: Path) -> None:
    """Its bundle is made of the image that it builds, and its shared folders are the test's."""
    command = wheel.installed(tmp_path / "wheel")
    page = (paths.PROJECT / "docs" / "guides" / "first-job.md").read_text(encoding="utf-8")
    bundle, runs, images = tmp_path / "bundle", tmp_path / "shared" / "runs", tmp_path / "images"
    page = page.replace("/images/my-training", str(bundle)).replace("/shared/runs", str(runs))
    first, *commands = [match.groupdict() for match in BLOCK.finditer(page)]
    runs.mkdir(parents=True)
    environ = {
        "PATH": f"{command.parent}:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(Path.home()),
        "RDMA_IMAGES_STATE": str(paths.state_folder()),
    }
    subprocess.run(["bash", "-e", "-c", first["text"]], cwd=tmp_path, env=environ, check=True, capture_output=True)
    (image,) = images.glob("build/images/*/build.json")
    with (
        training_parts.bundle(bundle, training_parts.built_image(image)),
        slurm_parts.cluster(tmp_path / "slurm") as programs,
    ):
        environ["PATH"] = f"{programs}:{environ['PATH']}"
        (images / "src").mkdir()
        printed = ""
        for block in commands:
            if name := FILES.get(block["language"]):
                (images / name).write_text(block["text"], encoding="utf-8")
            elif block["language"] == "sh":
                done = subprocess.run(
                    ["bash", "-c", block["text"]], cwd=images, env=environ, capture_output=True, text=True, check=False
                )
                printed += done.stdout + done.stderr
    # torchrun decides which node has rank 0, and so which node's output the steps are in.
    (log,) = images.glob("build/jobs/first/runs/*/logs/first-1.log")
    assert "step 19 loss" in log.read_text(), printed
    (record,) = images.glob("build/jobs/first/runs/*/result.json")
    assert (runs / "last.pt").is_file()
    assert "no line of NCCL's is in the log" in printed.rpartition("step 19")[2], printed
    for path in (path for path in images.rglob("*") if path.is_file() and "wheel" not in path.name):
        assert b"not-a-real-one" not in path.read_bytes(), path
    assert record.is_file()
