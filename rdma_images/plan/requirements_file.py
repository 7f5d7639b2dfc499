"""Requirements files in pip's format, and uv.lock, for a target's Python packages."""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rdma_images.components import axis_of_wheel
from rdma_images.core import files, paths
from rdma_images.core.errors import RefusedError
from rdma_images.plan import local_packages

OPTION = re.compile(r"(?P<name>-[a-z]|--[a-z-]+)(?:[ =]\s*|(?<=-[a-z]))(?P<value>.*)")
HASH = re.compile(r"\s--hash[ =](?:sha256:(?P<sha256>[0-9a-f]{64})|\S+)")
COMMENT = re.compile(r"(^|\s)#.*$")
# A lock of uv, with the extras of its project that are wanted: "uv.lock[gpu,dev]".
UV_LOCK = re.compile(r"uv\.lock(?:\[(?P<extras>[^\]]*)\])?")
MAX_DEPTH = 10  # files that include one another


@dataclass
class Requirements:
    """The content of requirements files: packages, constraints, and allowed hashes."""

    packages: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    hashes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # sha256 of the allowed files, by name


@dataclass(frozen=True)
class _Line:
    """A line of a file, joined with those that continue it."""

    file: Path
    number: int  # 0 where the file has no such line
    text: str
    hashes: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        return f"{paths.display_path(self.file)}:{self.number}" if self.number else paths.display_path(self.file)

    def refused(self, sentence: str, fix: str) -> RefusedError:
        return RefusedError(f"{self.where}: {sentence}\n{fix}")


def read_requirements(
    requirements: str | None,
    constraints: str | None,
    versions: Mapping[str, str],
    where: Callable[[str], str] = lambda _: "matrix.yaml",
) -> Requirements:
    """Return what a target's requirements files ask for.

    Args:
        requirements: the file of packages, from the folder of matrix.yaml; None without one.
        constraints: likewise, the file of limits.
        versions: the image's components; a line about one of them must take its version, and is left out then.
        where: returns file and line of the field of a target that names such a file.

    Raises:
        RefusedError: a file cannot be read, or a line is no requirement of the package index; with file and line.
    """
    result = Requirements()
    for field_name, name in (("requirements", requirements), ("constraints", constraints)):
        if name and not UV_LOCK.fullmatch(Path(name).name) and not files.exists(paths.PROJECT / name):
            raise RefusedError(f"{where(field_name)}: {field_name} {name}: no such file\ncorrect its name, or write it")
        if name:
            is_constraint = field_name == "constraints"
            _add(paths.PROJECT / name, is_constraint, versions, result, ())
    return result


def _add(
    file: Path, is_constraint: bool, versions: Mapping[str, str], result: Requirements, above: Sequence[Path]
) -> None:
    if file in above or len(above) >= MAX_DEPTH:
        raise RefusedError(f"{paths.display_path(file)}: includes itself\nremove its line -r or -c")
    locked = UV_LOCK.fullmatch(file.name)
    for line in _uv_lock(file.with_name("uv.lock"), locked["extras"] or "") if locked else _lines(file):
        option = OPTION.fullmatch(line.text)
        if option is None:
            _add_requirement(line, is_constraint, versions, result)
        elif option["name"] in ("-r", "--requirement", "-c", "--constraint"):
            nested = is_constraint or option["name"] in ("-c", "--constraint")
            _add(file.parent / option["value"].strip(), nested, versions, result, (*above, file))
        elif option["name"] in ("-e", "--editable"):
            raise line.refused(
                "an editable install", f"write {option['value'].strip()}: the project is built as a wheel"
            )
        elif option["name"] in ("-i", "--index-url", "--extra-index-url", "-f", "--find-links"):
            raise line.refused(
                f"{option['name']}: packages come from one index, which mirrors.yaml may replace",
                "remove the line, and name the index under sources in mirrors.yaml",
            )
        else:
            raise line.refused(f"{option['name']}: not supported", "remove the line")


def _uv_lock(file: Path, extras: str) -> Iterator[_Line]:
    """Yield what the project of a uv.lock requires, with the locked hashes."""
    from uv import find_uv_bin  # here, because most targets have no such file

    if not files.exists(file):
        raise RefusedError(f"{paths.display_path(file)}: no such file\nrun uv lock in its folder")
    command = [find_uv_bin(), "export", "--frozen", "--offline", "--no-dev", "--no-emit-project", "--no-editable"]
    command += ["--no-annotate", "--no-header", "--quiet", "--format", "requirements.txt"]
    extra_names = [extra.strip() for extra in extras.split(",") if extra.strip()]
    if unknown_extras := sorted(set(extra_names) - _extras(file.with_name("pyproject.toml"))):
        raise RefusedError(
            f"{paths.display_path(file)}: its project has no extra {', '.join(unknown_extras)}\ncorrect the name"
        )
    command += [f"--extra={extra}" for extra in extra_names]
    process = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    if process.returncode:
        words = " ".join(process.stderr.split()).removeprefix("error: ")
        raise RefusedError(
            f"{paths.display_path(file)}: {words}\nsee that pyproject.toml is beside it, and run uv lock there"
        )
    yield from _joined_lines(file, process.stdout, is_numbered=False)


def _extras(project: Path) -> set[str]:
    """Return the extras of a project; none where uv will say what is wrong with its file."""
    import tomllib  # here, because few images have a uv.lock

    try:
        return {*tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]}
    except (OSError, ValueError, LookupError, TypeError):
        return set()


def _lines(file: Path) -> Iterator[_Line]:
    try:
        if not files.exists(file):
            raise RefusedError(f"{paths.display_path(file)}: no such file\ncorrect its name, or write it")
        text = files.read_text(file)
    except files.FileError as error:
        raise RefusedError(str(error)) from None
    yield from _joined_lines(file, text)


def _joined_lines(file: Path, text: str, is_numbered: bool = True) -> Iterator[_Line]:
    """Yield the lines of a text, each with those that continue it."""
    joined_text, first_line = "", 0
    for number, raw_line in (
        enumerate(text.splitlines(), 1) if is_numbered else ((0, line) for line in text.splitlines())
    ):
        first_line = first_line if joined_text else number
        if raw_line.endswith("\\"):
            joined_text += raw_line[:-1] + " "
            continue
        line = COMMENT.sub("", joined_text + raw_line)
        joined_text = ""
        if text := HASH.sub("", line).strip():
            yield _Line(
                file, first_line, text, tuple(match["sha256"] for match in HASH.finditer(line) if match["sha256"])
            )


def _add_requirement(line: _Line, is_constraint: bool, versions: Mapping[str, str], result: Requirements) -> None:
    from packaging.requirements import InvalidRequirement, Requirement  # here, because most targets have no such file
    from packaging.utils import canonicalize_name

    if is_constraint and local_packages.is_address(line.text):
        raise line.refused("an address among constraints", "write it into the requirements")
    text = local_packages.pin(line.text, line.file.parent, line.where)
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise line.refused(
            f"{line.text!r} is no package of the package index", "write name, name==1.2 or the like, one a line"
        ) from None
    name = canonicalize_name(requirement.name)
    if requirement.url and text == line.text and not local_packages.is_address(text):
        raise line.refused(
            f"{name}: no path and no address of a repository", f"write {name} @ ./PATH, or name==version"
        )
    component = axis_of_wheel(name)
    if component and component in versions:
        if not requirement.specifier.contains(versions[component], prereleases=True):
            raise line.refused(
                f"{line.text}, and the image has {name} {versions[component]}",
                f"choose another with --set {component}=VERSION or in matrix.yaml, or change the line",
            )
        return
    (result.constraints if is_constraint else result.packages).append(str(requirement))
    if line.hashes and not is_constraint:
        result.hashes[name] = line.hashes
