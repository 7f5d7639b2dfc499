"""hadolint, by the project's settings."""

import subprocess
from pathlib import Path

from rdma_images.core import paths

SETTINGS = paths.PROJECT / ".hadolint.yaml"


def findings(*files: Path) -> str:
    """Return what hadolint says of Dockerfiles, with the rules that the project leaves out."""
    command = ["hadolint", "--no-color", f"--config={SETTINGS}", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True).stdout
