"""Run the validators over a case, in a process of its own, and read back the checks."""

import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rdma_images.errors import RdmaImagesError
from rdma_images.model import Check
from rdma_images.paths import PROJECT, VALIDATORS
from rdma_images.validate.case import Case

LIMIT = 120  # seconds: the validators only relate what was measured
INPUTS = (
    "validators/**/*.py",
    "validators/*.yaml",
    "rdma_images/validate/*.py",
    "rdma_images/datapath/*.py",
    "rdma_images/datapath/guest/*",
    "rdma_images/facts/*.py",
    "rdma_images/labels.py",
    "rdma_images/model.py",
    "rdma_images/nccl_log.py",
    "rdma_images/plain.py",
    "rdma_images/stream.py",
    "rdma_images/verdict.py",
    "rdma_images/versions.py",
    "rdma_images/yamlfile.py",
    "facts/bases.yaml",
    "facts/environment.yaml",
    "facts/erdma.yaml",
    "facts/instances.yaml",
    "facts/nccl-logs.yaml",
)


@functools.cache
def digest() -> str:
    """The digest of all that decides a result beside the image: same digest, same answer."""
    found = hashlib.sha256()
    for pattern in INPUTS:
        for path in sorted(PROJECT.glob(pattern)):
            found.update(str(path.relative_to(PROJECT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"sha256:{found.hexdigest()}"


def run(case: Case, tiers: tuple[str, ...], junit: Path) -> tuple[Check, ...]:
    """The checks of every validator of `tiers`, in the suite's order; JUnit's XML goes to `junit`.

    Raises RdmaImagesError where the suite itself could not run: that is never the image's fault.
    """
    import pytest  # 0.06 s, which who has nothing to run should not wait for

    with tempfile.TemporaryDirectory(prefix="rdma-images-") as folder:
        given, answer = Path(folder) / "case.json", Path(folder) / "checks.json"
        given.write_text(case.model_dump_json(), encoding="utf-8")
        command = [
            *(sys.executable, "-m", "pytest", str(VALIDATORS), "-q", "--no-header", "--color=no", "-o", "addopts="),
            *("-p", "rdma_images.validate.plugin", "-p", "no:cacheprovider", "-p", "no:testinfra", "--tb=line"),
            *(f"--case={given}", f"--checks={answer}", f"--tiers={','.join(tiers)}", f"--junit-xml={junit}"),
            *("-o", "junit_suite_name=rdma-images", "-o", "junit_family=xunit2", "--rootdir", str(PROJECT)),
        ]
        done = _run(command)
        if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
            raise RdmaImagesError(f"no validator is of the tier {', '.join(tiers)}: ask for static, device or gpu")
        if done.returncode not in (0, 1) or not answer.exists():
            last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
            raise RdmaImagesError(f"the validators could not run (pytest ended with {done.returncode}):\n{last}")
        return tuple(Check(**fields) for fields in json.loads(answer.read_text(encoding="utf-8")))


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": "", "PYTEST_PLUGINS": ""}
    try:
        return subprocess.run(
            command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise RdmaImagesError(f"the validators did not end in {LIMIT} s: look at validators/ for what waits") from None
