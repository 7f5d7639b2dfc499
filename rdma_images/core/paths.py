"""Paths of the project's files, of a build's results, and of the user's state folder.

The code is in a checkout, or installed from a wheel. A checkout works on itself. Installed code brings its facts,
templates, validators and locks along (DATA), and works on the user's folder (PROJECT): the current one, or the nearest
around it with a matrix.yaml. All files are written there; its own facts/, dockerfiles/ and locks/ extend those of the
wheel.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from rdma_images.core.errors import RdmaImagesError

_PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = (_PACKAGE / "data").is_dir()


def _users_folder() -> Path:
    """Return the current folder, or the nearest around it with a matrix.yaml."""
    try:
        current = Path.cwd()
    except FileNotFoundError:  # removed by somebody else: cli/program.py says so before anything is asked of it
        return Path("/")
    return next((folder for folder in (current, *current.parents) if (folder / "matrix.yaml").is_file()), current)


CODE = _PACKAGE.parent
PROJECT = _users_folder() if INSTALLED else CODE
DATA = _PACKAGE / "data" if INSTALLED else PROJECT
# What the user types, for messages.
COMMAND = "rdma-images" if INSTALLED else "invoke"
# Python on this code, started in PROJECT: installed code must not be shadowed by what lies in the user's folder.
PYTHON = (sys.executable, "-P") if INSTALLED else (sys.executable,)

MATRIX = PROJECT / "matrix.yaml"
FACTS = DATA / "facts"
LOCKS = PROJECT / "locks"
VALIDATORS = DATA / "validators"
PACKAGE = _PACKAGE
BUILD = PROJECT / "build"
IMAGES = BUILD / "images"


def data_folders(name: str) -> Iterator[Path]:
    """Yield the folders of one kind of data ("dockerfiles"), the user's own first."""
    if INSTALLED and (users := PROJECT / name).is_dir():
        yield users
    yield DATA / name


def overrides() -> list[str]:
    """Return the user's files that replace the tool's own, as "jobs/slurm/job.sbatch.j2"."""
    overridden = []
    for part in ("dockerfiles", "jobs"):
        users, *built_in = data_folders(part)
        for file in sorted(users.rglob("*")) if built_in else ():
            if file.is_file() and (DATA / part / file.relative_to(users)).exists():
                overridden.append(f"{part}/{file.relative_to(users)}")
    return overridden


def find_data(name: str) -> Path:
    """Return the path of a file or folder of the data by its name, "dockerfiles/macros.j2".

    The user's own comes before the wheel's. Where neither exists, it is the path in the user's folder.
    """
    part, _, below = name.partition("/")
    return next((folder / below for folder in data_folders(part) if (folder / below).exists()), PROJECT / name)


def display_path(path: Path) -> str:
    """Return a path for messages: relative to PROJECT where it is inside, else absolute."""
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


def image_folder(image_id: str) -> Path:
    """Return where the steps write what they know of one image: build/images/<image id>/."""
    return IMAGES / image_id


def state_folder() -> Path:
    """Return the folder shared by runs and checkouts: downloads, bases, the private engine.

    RDMA_IMAGES_STATE names it; otherwise it is rdma-images under the XDG state home. Raises RdmaImagesError for a user
    without a home folder.
    """
    if configured := os.environ.get("RDMA_IMAGES_STATE"):
        return Path(configured).absolute()
    if configured := os.environ.get("XDG_STATE_HOME"):
        return Path(configured) / "rdma-images"
    try:
        return Path.home() / ".local" / "state" / "rdma-images"
    except RuntimeError:
        raise RdmaImagesError(
            f"user {os.geteuid()} has no home folder on this machine, so that nothing can be kept between runs\n"
            "set RDMA_IMAGES_STATE to a folder that this user can write"
        ) from None
