"""Python packages of no index as build contexts: wheels, project folders, commits."""

import os
import shutil

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rdma_images.build import added_files
from rdma_images.core import files, paths
from rdma_images.core.image import Image
from rdma_images.core.progress import Progress, silent
from rdma_images.inputs import git_repositories
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Lock
from rdma_images.plan.local_packages import LocalPackage, parse
from rdma_images.render.bake import package_context

# What tools write beside a project's own files: it changes without a change of the code.
IGNORED = ("**/.git", "**/__pycache__", "**/*.pyc", "**/*.egg-info", "**/.venv", "**/build")


def digests(image: Image, lock: Lock) -> dict[str, str]:
    """Return the digest of each package of no index, by name. Raises as `folder_digest`."""
    return {
        name: added_files.folder_digest(_folder(package), IGNORED) if package.kind == "folder" else package.digest
        for name, package in _packages(image, lock).items()
    }


def contexts(image: Image, lock: Lock, mirrors: Mirrors, progress: Progress = silent) -> dict[str, str]:
    """Return a folder of files for each of these packages, by context name; fetch commits."""
    staged = {}
    for name, package in _packages(image, lock).items():
        target = paths.image_folder(image.id) / "packages" / name
        shutil.rmtree(target, ignore_errors=True)
        if package.kind == "commit":
            target = git_repositories.fetch(package, mirrors, progress)
        elif package.kind == "folder":
            added_files.copy_folder(_folder(package), target, IGNORED)
        else:
            with files.as_file_error():
                target.mkdir(parents=True)
                shutil.copy(package.path, target)  # with a new time: BuildKit tells files by name, size and time
        staged[package_context(name)] = str(target)
    return staged


def _packages(image: Image, lock: Lock) -> dict[str, LocalPackage]:
    """Return the image's installed packages that no index has, by name."""
    local = {wheel.name for wheel in lock.wheels if wheel.origin}
    requirements = {canonicalize_name(line.name): line for line in map(Requirement, image.python_packages)}
    parsed = {str(name): parse(line.url) for name, line in requirements.items() if name in local}
    return {name: package for name, package in parsed.items() if package}


def _folder(package: LocalPackage) -> str:
    return os.path.normpath(package.address)
