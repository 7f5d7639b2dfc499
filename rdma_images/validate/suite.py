"""Run the validators over an inspection, in a process of its own, and read back the checks."""

import contextlib
import functools
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rdma_images.core.check import Check
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import CODE, DATA, PROJECT, PYTHON, VALIDATORS, data_folders
from rdma_images.inspection.inspection import Inspection
from rdma_images.validate.check_folders import ListedCheck

VALIDATORS_SECONDS = 120  # seconds: the validators only relate what was measured
NO_TESTS = 5  # pytest.ExitCode.NO_TESTS_COLLECTED; importing pytest takes 0.1 s
# Plugins of pytest: one writes into the checkout, the others collect garbage at the end for what validators never do.
UNUSED_PLUGINS = ("cacheprovider", "unraisableexception", "threadexception")
INPUTS = (
    "validators/**/*.py",
    "validators/*.yaml",
    "rdma_images/validate/**/*.py",
    "rdma_images/chain/*.py",
    "rdma_images/inspection/*.py",
    "rdma_images/preflight/*.py",
    "rdma_images/nccl_logs/*.py",
    "rdma_images/datapath/*.py",
    "rdma_images/datapath/guest/*",
    "rdma_images/components/*.py",
    "rdma_images/facts/*.py",
    "rdma_images/plan/runtime.py",
    "rdma_images/core/check.py",
    "rdma_images/core/exit_codes.py",
    "rdma_images/core/files.py",
    "rdma_images/core/image.py",
    "rdma_images/core/plain.py",
    "rdma_images/core/sizes.py",
    "rdma_images/core/source.py",
    "rdma_images/core/stream.py",
    "rdma_images/core/versions.py",
    "rdma_images/core/yaml_file.py",
    "facts/**/*.yaml",
)


@functools.cache
def digest() -> str:
    """Return the digest of all that decides a result beside the image."""
    hasher = hashlib.sha256()
    for pattern in INPUTS:
        for root in _roots(pattern):
            for path in sorted(root.glob(pattern)):
                hasher.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"sha256:{hasher.hexdigest()}"


def _roots(pattern: str) -> list[Path]:
    """Return the folders in which a pattern of INPUTS is looked for."""
    part = pattern.partition("/")[0]
    return [CODE] if part == "rdma_images" else [folder.parent for folder in data_folders(part)]


def run(inspection: Inspection, tiers: tuple[str, ...], junit: Path) -> tuple[Check, ...]:
    """Return the checks of every validator of `tiers` that the image gets; see `running_suite`."""
    with running_suite(tiers, junit) as checks:
        return checks(inspection)


def list_checks(inspection: Inspection, tiers: tuple[str, ...]) -> tuple[ListedCheck, ...]:
    """Return the checks of `tiers` that an image gets; none of them is run.

    Raises:
        RdmaImagesError: The validators cannot be collected.
    """
    with tempfile.TemporaryDirectory(prefix="rdma-images-") as folder:
        listed_file = Path(folder) / "listed.json"
        with _pytest(Path(folder) / "checks.json", tiers, f"--list-checks={listed_file}") as process:
            return tuple(ListedCheck(**fields) for fields in _answer(process, inspection, listed_file, tiers))


@contextlib.contextmanager
def running_suite(tiers: tuple[str, ...], junit: Path) -> Iterator[Callable[[Inspection], tuple[Check, ...]]]:
    """Start the validators; provide a function from inspection to checks, in order.

    It imports and collects while an image is measured. It is ended with the context.

    Args:
        tiers: The tiers to run.
        junit: Where the XML for JUnit goes.

    Raises:
        RdmaImagesError: The suite itself could not run: that is never the image's fault.
    """
    with tempfile.TemporaryDirectory(prefix="rdma-images-") as folder:
        checks_file = Path(folder) / "checks.json"
        with _pytest(checks_file, tiers, f"--junit-xml={junit}") as process:
            yield lambda inspection: tuple(
                Check(**fields) for fields in _answer(process, inspection, checks_file, tiers)
            )


@contextlib.contextmanager
def _pytest(checks_file: Path, tiers: tuple[str, ...], option: str) -> "Iterator[subprocess.Popen[str]]":
    """Provide the process of the validators, which waits for an inspection; it is ended with the context."""
    command = [*PYTHON, "-m", "pytest", str(VALIDATORS), *options(Path("/dev/stdin"), checks_file, tiers), option]
    command += ["--capture=no"]  # without it, standard input is no more
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment |= {"PYTEST_ADDOPTS": "", "PYTEST_PLUGINS": ""}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=PROJECT, env=environment, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _answer(
    process: "subprocess.Popen[str]", inspection: Inspection, answer_file: Path, tiers: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Give an inspection to the process of the validators, and return what it writes."""
    try:
        out, err = process.communicate(inspection.model_dump_json(), timeout=VALIDATORS_SECONDS)
    except subprocess.TimeoutExpired:
        raise RdmaImagesError(
            f"the validators did not end in {VALIDATORS_SECONDS} s\nlook in validators/ for what waits"
        ) from None
    answer: list[dict[str, Any]] = json.loads(answer_file.read_bytes()) if answer_file.exists() else []
    if process.returncode == NO_TESTS and not answer:
        raise RdmaImagesError(f"no validator is of the tier {', '.join(tiers)}\nask for static, device or gpu")
    if process.returncode not in (0, 1, NO_TESTS) or not answer:
        output_tail = "\n".join((out + err).strip().splitlines()[-8:])
        raise RdmaImagesError(f"the validators could not run (pytest ended with {process.returncode}):\n{output_tail}")
    return answer


def options(inspection_file: Path, checks_file: Path, tiers: tuple[str, ...]) -> list[str]:
    """Return pytest's arguments: no configuration file, and the checks go to `checks_file`."""
    return [
        *("-q", "--no-header", "--color=no", "--assert=plain", "--tb=line", "--rootdir", str(DATA), "-c", os.devnull),
        *("-p", "rdma_images.validate.pytest_plugin"),
        *(word for name in UNUSED_PLUGINS for word in ("-p", f"no:{name}")),
        *("-o", "junit_suite_name=rdma-images", "-o", "junit_family=xunit2", "-o", "addopts="),
        *(f"--inspection={inspection_file}", f"--checks={checks_file}", f"--tiers={','.join(tiers)}"),
    ]
