"""The Python packages of a target: those in matrix.yaml, and requirements files in pip's format."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rdma_images.components import axis_of_wheel
from rdma_images.core import files, paths
from rdma_images.core.errors import RefusedError
from rdma_images.plan import local_packages
from rdma_images.plan.matrix import Target

OPTION = re.compile(r"(?P<name>-[a-z]|--[a-z-]+)(?:[ =]\s*|(?<=-[a-z]))(?P<value>.*)")
HASH = re.compile(r"\s--hash[ =](?:sha256:(?P<sha256>[0-9a-f]{64})|\S+)")
COMMENT = re.compile(r"(^|\s)#.*$")
INCLUDED = ("-r", "--requirement", "-c", "--constraint")


@dataclass
class Requirements:
    """What a target asks for: packages, constraints, and allowed hashes."""

    packages: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    hashes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # sha256 of the allowed files, by name


def read_requirements(
    target: Target, versions: Mapping[str, str], where: Callable[..., str] = lambda *_: "matrix.yaml"
) -> Requirements:
    """Return what a target asks for in matrix.yaml and in its requirements files.

    Args:
        target: its files are named from the folder of matrix.yaml.
        versions: the image's components; a line about one of them must take its version, and is left out then.
        where: returns file and line of a part of the target.

    Raises:
        RefusedError: a file cannot be read, or a line is no requirement of the package index; with file and line.
    """
    result = Requirements()
    for number, text in enumerate(target.python_packages):
        result.packages.append(local_packages.pin(text, paths.PROJECT, where("python-packages", number)))
    for field_name, name in (("requirements", target.requirements), ("constraints", target.constraints)):
        if name and not files.exists(paths.PROJECT / name):
            raise RefusedError(f"{where(field_name)}: {field_name} {name}: no such file\ncorrect its name, or write it")
        if name:
            _add_file(paths.PROJECT / name, field_name == "constraints", versions, result, ())
    return result


def _add_file(
    file: Path, is_constraint: bool, versions: Mapping[str, str], result: Requirements, above: Collection[Path]
) -> None:
    if file.resolve() in above:
        raise RefusedError(f"{paths.display_path(file)}: includes itself\nremove its line -r or -c")
    for where, text, hashes in _lines(file):
        option = OPTION.fullmatch(text)
        if option is None:
            _add_requirement(text, hashes, file.parent, where, is_constraint, versions, result)
        elif option["name"] in INCLUDED:
            nested = is_constraint or "c" in option["name"]
            _add_file(file.parent / option["value"].strip(), nested, versions, result, (*above, file.resolve()))
        else:
            fix = "remove the line; mirrors.yaml names the one index, and a project to build is written as its path"
            raise RefusedError(f"{where}: {option['name']}: not supported\n{fix}")


def _lines(file: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield file and line, text and hashes of each line, joined with those that continue it."""
    try:
        if not files.exists(file):
            raise RefusedError(f"{paths.display_path(file)}: no such file\ncorrect its name, or write it")
        text = files.read_text(file)
    except files.FileError as error:
        raise RefusedError(str(error)) from None
    joined_text, first_line = "", 0
    for number, raw_line in enumerate(text.splitlines(), 1):
        first_line = first_line if joined_text else number
        if raw_line.endswith("\\"):
            joined_text += raw_line[:-1] + " "
            continue
        line = COMMENT.sub("", joined_text + raw_line)
        joined_text = ""
        if requirement := HASH.sub("", line).strip():
            hashes = tuple(match["sha256"] for match in HASH.finditer(line) if match["sha256"])
            yield f"{paths.display_path(file)}:{first_line}", requirement, hashes


def _add_requirement(
    line: str,
    hashes: tuple[str, ...],
    folder: Path,
    where: str,
    is_constraint: bool,
    versions: Mapping[str, str],
    result: Requirements,
) -> None:
    if is_constraint and local_packages.is_address(line):
        raise RefusedError(f"{where}: an address among constraints\nwrite it into the requirements")
    text = local_packages.pin(line, folder, where)
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        fix = "write name, name==1.2 or the like, one a line"
        raise RefusedError(f"{where}: {line!r} is no package of the package index\n{fix}") from None
    name = canonicalize_name(requirement.name)
    if requirement.url and text == line and not local_packages.is_address(text):
        fix = f"write {name} @ ./PATH, or name==version"
        raise RefusedError(f"{where}: {name}: no path and no address of a repository\n{fix}")
    component = axis_of_wheel(name)
    if component and component in versions:
        if not requirement.specifier.contains(versions[component], prereleases=True):
            raise RefusedError(
                f"{where}: {line}, and the image has {name} {versions[component]}\n"
                f"choose another with --set {component}=VERSION or in matrix.yaml, or change the line"
            )
        return
    (result.constraints if is_constraint else result.packages).append(str(requirement))
    if hashes and not is_constraint:
        result.hashes[name] = hashes
