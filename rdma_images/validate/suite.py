"""Run the validators over a case, in a process of its own, and read back the checks."""

import functools
import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import CODE, DATA, PROJECT, PYTHON, VALIDATORS, places
from rdma_images.core.pipeline import Check
from rdma_images.inspection.inspection import Inspection

LIMIT = 120  # seconds: the validators only relate what was measured
# Plugins of pytest: one writes into the checkout, the others collect garbage at the end for what validators never do.
UNUSED = ("cacheprovider", "unraisableexception", "threadexception")
INPUTS = (
    "validators/**/*.py",
    "validators/*.yaml",
    "rdma_images/validate/**/*.py",
    "rdma_images/chain/*.py",
    "rdma_images/inspection/*.py",
    "rdma_images/nccl_logs/*.py",
    "rdma_images/datapath/*.py",
    "rdma_images/datapath/guest/*",
    "rdma_images/facts/*.py",
    "rdma_images/plan/runtime.py",
    "rdma_images/core/exit_codes.py",
    "rdma_images/core/files.py",
    "rdma_images/core/pipeline.py",
    "rdma_images/core/plain.py",
    "rdma_images/core/sizes.py",
    "rdma_images/core/stream.py",
    "rdma_images/core/versions.py",
    "rdma_images/core/yaml_file.py",
    "rdma_images/core/zstd_frames.py",
    "facts/aws-ofi-nccl.yaml",
    "facts/bases.yaml",
    "facts/cuda.yaml",
    "facts/efa-installer.yaml",
    "facts/environment.yaml",
    "facts/erdma.yaml",
    "facts/faults.yaml",
    "facts/instances.yaml",
    "facts/nccl-logs.yaml",
    "facts/packages.yaml",
    "facts/running.yaml",
    "facts/variables.yaml",
)


@functools.cache
def digest() -> str:
    """Return the digest of all that decides a result beside the image: same digest, same answer."""
    hasher = hashlib.sha256()
    for pattern in INPUTS:
        for root in _roots(pattern):
            for path in sorted(root.glob(pattern)):
                hasher.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"sha256:{hasher.hexdigest()}"


def _roots(pattern: str) -> list[Path]:
    """Return the folders in which a pattern of INPUTS is looked for."""
    part = pattern.partition("/")[0]
    return [CODE] if part == "rdma_images" else [folder.parent for folder in places(part)]


def run(case: Inspection, tiers: tuple[str, ...], junit: Path, without: tuple[str, ...] = ()) -> tuple[Check, ...]:
    """Return the checks of every validator of `tiers`, in the suite's order; JUnit's XML goes to `junit`.

    Checks whose ids begin with one of `without` are left out.

    Raises RdmaImagesError where the suite itself could not run: that is never the image's fault.
    """
    import pytest  # 0.06 s, which who has nothing to run should not wait for

    with tempfile.TemporaryDirectory(prefix="rdma-images-") as folder:
        given, answer = Path(folder) / "case.json", Path(folder) / "checks.json"
        given.write_text(case.model_dump_json(), encoding="utf-8")
        command = [*PYTHON, "-m", "pytest", str(VALIDATORS), *options(given, answer, tiers), f"--junit-xml={junit}"]
        command += [f"--without={','.join(without)}"] if without else []
        done = _run(command)
        if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
            raise RdmaImagesError(f"no validator is of the tier {', '.join(tiers)}\nask for static, device or gpu")
        if done.returncode not in (0, 1) or not answer.exists():
            last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
            raise RdmaImagesError(f"the validators could not run (pytest ended with {done.returncode}):\n{last}")
        return tuple(Check(**fields) for fields in json.loads(answer.read_text(encoding="utf-8")))


def options(case: Path, answer: Path, tiers: tuple[str, ...]) -> list[str]:
    """Return pytest's arguments for `case` and `tiers`: no configuration file, and the checks as JSON in `answer`."""
    return [
        *("-q", "--no-header", "--color=no", "--assert=plain", "--tb=line", "--rootdir", str(DATA), "-c", os.devnull),
        *("-p", "rdma_images.validate.pytest_plugin"),
        *(word for name in UNUSED for word in ("-p", f"no:{name}")),
        *("-o", "junit_suite_name=rdma-images", "-o", "junit_family=xunit2", "-o", "addopts="),
        *(f"--case={case}", f"--checks={answer}", f"--tiers={','.join(tiers)}"),
    ]


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment |= {"PYTEST_ADDOPTS": "", "PYTEST_PLUGINS": ""}
    try:
        return subprocess.run(
            command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise RdmaImagesError(f"the validators did not end in {LIMIT} s\nlook in validators/ for what waits") from None
