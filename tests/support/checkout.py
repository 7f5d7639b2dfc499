"""A copy of this checkout, for a test that changes the project's own files."""

import shutil
import subprocess
from pathlib import Path

from rdma_images.core import paths


def copied(folder: Path) -> Path:
    """Return all files that git knows, as they are here, in `folder`; returns that."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=paths.PROJECT, capture_output=True, text=True, check=True)
    for name in filter(None, files.stdout.split("\0")):
        if (file := paths.PROJECT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, folder / name)
    return folder
