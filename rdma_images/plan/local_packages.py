"""Python packages of no index: wheels and projects beside matrix.yaml, git commits."""

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from rdma_images.components import axis_of_wheel
from rdma_images.core import files, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.local_package import COMMIT
from rdma_images.plan.axes import OPTIONAL

_EXTRAS = r"(?:\[(?P<{}>[^\]]*)\])?"
ADDRESS = re.compile(
    rf"(?:(?P<name>[A-Za-z0-9][\w.-]*)\s*{_EXTRAS.format('extras')}\s*@\s*)?"
    rf"(?P<url>(?:\.{{1,2}}/|/|~|git\+|[a-z+]+:)\S*?|\.|[^\s@]+?\.whl){_EXTRAS.format('extras_after')}"
    r"(?:\s*;\s*(?P<marker>.+))?"
)
# The files of a project that decide what it requires; setup.py and setuptools may read such lists beside them.
METADATA = ("pyproject.toml", "setup.cfg", "setup.py", "*.txt")


class _ProblemError(Exception):
    """A fault of a requirement, and what to do."""


def is_address(text: str) -> bool:
    """Return whether a requirement has an address, instead of naming a release of the index."""
    return ADDRESS.fullmatch(text) is not None


def pin(text: str, folder: Path, where: str) -> str:
    """Return a requirement with an address pinned by digest; any other one unchanged.

    Args:
        text: "./wheels/x.whl", "./project[extra]", or "name @ git+https://host/repository@COMMIT".
        folder: The folder that a path is relative to.
        where: File and line of the requirement.

    Returns:
        "x @ ./wheels/x.whl#sha256=…", "name[extra] @ ./project#metadata=…", or the commit's.

    Raises:
        RefusedError: The package is not there, is outside of matrix.yaml's folder, or is not pinned.
    """
    match = ADDRESS.fullmatch(text)
    if match is None:
        return text
    try:
        with files.raising_file_error():
            _refuse_login(match["url"])
            name, package_url = _commit(match) if "git+" in match["url"] else _local(match, folder)
            if (axis := axis_of_wheel(canonicalize_name(name))) and axis not in OPTIONAL:
                raise _ProblemError(f"the axis {axis} decides the version of {name}\nremove it here")
    except _ProblemError as problem:
        raise RefusedError(f"{where}: {problem}") from None
    extras = match["extras"] or match["extras_after"]
    marker = f" ; {match['marker']}" if match["marker"] else ""
    return f"{name}{f'[{extras}]' if extras else ''} @ {package_url}{marker}"


def _refuse_login(url: str) -> None:
    """Raise for an address with a login, which the error does not repeat."""
    split = urlsplit(url)
    if split.password or (split.username and "ssh" not in split.scheme):
        raise _ProblemError("a login in the address\nremove it: git takes logins from its own settings")


def _commit(match: re.Match[str]) -> tuple[str, str]:
    """Return the name and the address of a package at a commit of a repository."""
    url = match["url"]
    if not COMMIT.fullmatch(url):
        raise _ProblemError(
            f"{url!r} names no repository at a whole commit, and branches and tags move\n"
            "write name @ git+https://HOST/REPOSITORY@COMMIT, with the 40 digits that git ls-remote shows"
        )
    if not match["name"]:
        raise _ProblemError(f"{url!r} does not say which package it is\nwrite name @ {url}")
    return match["name"], url


def _local(match: re.Match[str], folder: Path) -> tuple[str, str]:
    """Return the name of a package in a file or folder, and its path with the digest that decides a lock."""
    url = match["url"]
    if re.match(r"[a-z+]+:|~|/", url):
        fix = "copy it into the folder of matrix.yaml, and write ./PATH"
        raise _ProblemError(f"{url!r} is outside of the folder of matrix.yaml\n{fix}")
    path = Path(os.path.normpath(folder / url))
    if not path.resolve().is_relative_to(paths.PROJECT.resolve()):
        raise _ProblemError(f"{url!r} is outside of the folder of matrix.yaml\ncopy it there, and write ./PATH")
    if not path.exists():
        raise _ProblemError(f"{url!r}: no such file or folder\nwrite it, or correct its path")
    name, fragment = _wheel(path) if path.is_file() else _project(path, match["name"])
    if match["name"] and canonicalize_name(match["name"]) != canonicalize_name(name):
        raise _ProblemError(f"{url!r} is the package {name}\nwrite {name} @ {url}")
    return name, f"./{path.relative_to(paths.PROJECT).as_posix()}#{fragment}"


def _wheel(path: Path) -> tuple[str, str]:
    """Return the name of a wheel's package, and the digest of the file as "sha256=…"."""
    try:
        name = str(parse_wheel_filename(path.name)[0])
    except InvalidWheelFilename:
        fix = "make a wheel of it with pip wheel"
        raise _ProblemError(f"{path.name!r} is neither a wheel nor a folder\n{fix}") from None
    with path.open("rb") as wheel:
        return name, f"sha256={hashlib.file_digest(wheel, 'sha256').hexdigest()}"


def _project(path: Path, name: str | None) -> tuple[str, str]:
    """Return the name of a folder's package, and the digest of the files with its metadata as "metadata=…"."""
    deciding = sorted({file for pattern in METADATA for file in path.glob(pattern) if file.is_file()})
    if not any(file.suffix != ".txt" for file in deciding):
        fix = "write one, or copy the folder with `files`"
        raise _ProblemError(f"{paths.display_path(path)} has no pyproject.toml\n{fix}")
    digest = hashlib.sha256()
    for file in deciding:
        content = file.read_bytes()
        digest.update(f"{file.name}\0{len(content)}\0".encode() + content)
    project = _project_name(path / "pyproject.toml") or name
    if not project:
        raise _ProblemError(
            f"{paths.display_path(path)}: its pyproject.toml does not say its name\nwrite NAME @ ./{path.name}"
        )
    return project, f"metadata={digest.hexdigest()}"


def _project_name(file: Path) -> str | None:
    """Return the name in a pyproject.toml; None for no such file, or one without a name."""
    if not file.is_file():
        return None
    import tomllib  # here, because few images have a project folder

    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except ValueError as error:
        raise _ProblemError(f"{paths.display_path(file)}: {error}\ncorrect it") from None
    name = project.get("name") if isinstance(project, dict) else None
    return name if isinstance(name, str) else None
