"""Fetch commits of git repositories with git, and its own settings and logins."""

import os
import shutil
import subprocess
from pathlib import Path

from rdma_images.core import locking, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.local_package import LocalPackage
from rdma_images.core.progress import Progress, silent
from rdma_images.inputs.mirrors import Mirrors


def commit_folder(package: LocalPackage) -> Path:
    """Return where the files of a commit are, once `fetch` has them."""
    return paths.state_folder() / "repositories" / package.digest


def fetch(package: LocalPackage, mirrors: Mirrors, progress: Progress = silent) -> Path:
    """Return the folder of a commit's files, with submodules. Raises RdmaImagesError."""
    target = commit_folder(package)
    with locking.hold(f"repository-{package.digest}", f"fetching {package.origin}", progress):
        if target.is_dir():
            return target
        progress(f"fetching {package.origin}")
        checkout = target.with_name(f".{target.name}")
        shutil.rmtree(checkout, ignore_errors=True)
        checkout.mkdir(parents=True)
        _git(package, mirrors, checkout, "init", "--quiet")
        _git(package, mirrors, checkout, "fetch", "--quiet", "--depth=1", package.address, package.digest)
        _git(package, mirrors, checkout, "checkout", "--quiet", package.digest)
        _git(package, mirrors, checkout, "submodule", "--quiet", "update", "--init", "--recursive", "--depth=1")
        for metadata in [*checkout.rglob(".git")]:
            shutil.rmtree(metadata) if metadata.is_dir() else metadata.unlink(missing_ok=True)
        checkout.rename(target)
    return target


def _git(package: LocalPackage, mirrors: Mirrors, cwd: Path, *arguments: str) -> None:
    environ = os.environ | {"GIT_TERMINAL_PROMPT": "0", "GIT_SSL_CAINFO": str(mirrors.ca_bundle)}
    try:
        process = subprocess.run(["git", *arguments], cwd=cwd, env=environ, capture_output=True, text=True)
    except FileNotFoundError:
        raise RdmaImagesError(f"{package.origin}: git is not installed\ninstall it, with apt install git") from None
    if process.returncode:
        reason = next((line for line in process.stderr.splitlines() if line.startswith(("fatal:", "error:"))), "")
        raise RdmaImagesError(
            f"{package.origin}: {reason or f'git ended with {process.returncode}'}\n"
            "see that the repository has this commit, and that git's own credentials open it"
        )
