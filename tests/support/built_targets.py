"""Targets built as a user builds them, and what runs in them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from rdma_images import engine as engines
from rdma_images.core import paths

MINUTE = 60  # seconds


def built(*arguments: str, project: Path = paths.PROJECT) -> tuple[dict[str, list[dict[str, str]]], str]:
    """Return `invoke build --rehearse`, as it is typed; what it says for programs, by target."""
    command = [sys.executable, "-m", "invoke", "build", "--rehearse", "--json", *arguments]
    environ = {**os.environ, "PYTHONPATH": str(project)}
    done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=90 * MINUTE)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout), done.stderr


def ref(*arguments: str, project: Path = paths.PROJECT) -> str:
    """Return the name of the one image that is built, or is there already."""
    output, _ = built(*arguments, project=project)
    (build,) = output["builds"]
    return build["ref"]


def run(image: str, script: str, *options: str) -> tuple[int, str]:
    """Return a shell script in a container without a network: its exit code and what it said."""
    environ = engines.ensure().environ()
    command = ["docker", "run", "--rm", "--network", "none", *options, image, "sh", "-euc", script]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=2 * MINUTE)
    return done.returncode, done.stdout + done.stderr
