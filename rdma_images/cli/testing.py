"""The task that runs the project's tests: test."""

import subprocess
import sys

from invoke.context import Context
from invoke.exceptions import Exit

from rdma_images.cli.verb import verb
from rdma_images.core import paths

WORKERS = 3  # for two cores: many tests wait for a server, a scheduler or a container


@verb(
    "test --unit",
    "test -k publish",
    "test --real",
    name="test",
    help={
        "unit": "Only the fast tests, which need no engine.",
        "exhaustive": "Also the long tail: each fault that a validator finds, each broken data path.",
        "real": "Only the tests with the vendors' own files in $RDMA_IMAGES_REAL_SOURCES.",
        "k": "Only tests whose names match, in pytest's syntax.",
    },
)
def run_tests(_: Context, unit: bool = False, exhaustive: bool = False, real: bool = False, k: str = "") -> None:
    """Run the tests, the fast ones first.

    Then those with a real engine, wheels, registries and virtual machines. Several at a time, where they share no part.
    """
    command = [sys.executable, "-m", "pytest", f"--numprocesses={WORKERS}"]
    if real:
        command += ["-m", "real and not e2e" if unit else "real"]
    elif unit:
        command += ["-m", "not e2e and not exhaustive"]
    elif not exhaustive:
        command += ["-m", "not exhaustive and not (real and e2e)"]
    command += [] if unit else ["--leave-nothing"]
    command += ["-k", k] if k else []
    raise Exit(code=subprocess.run(command, cwd=paths.PROJECT).returncode)
