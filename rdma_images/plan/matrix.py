"""The model of matrix.yaml: targets, default rows, and the values of the whole matrix."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, is_normalized_name
from pydantic import AfterValidator, Field
from pydantic.config import JsonDict

from rdma_images import components
from rdma_images.components import gpus, nccl, nccl_tests
from rdma_images.components.aws_ofi_nccl import AWS_OFI_NCCL
from rdma_images.components.efa_installer import EFA_INSTALLER
from rdma_images.core import files, paths, yaml_file
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import Fabric
from rdma_images.core.yaml_file import Document, Strict, Words, YamlPath, must_match
from rdma_images.facts import Facts
from rdma_images.plan import axes, inheritance, local_packages
from rdma_images.plan.additions import TargetAdditions, Variables

# What a target is called is part of an image's reference and of a folder's name. Source: the reference grammar of
# github.com/distribution/reference, a path component. Of 100 characters: with the longest tag (128) it still names a
# folder (255), and with a digest of 12 a cache's tag (128).
NAME = re.compile(r"(?=.{1,100}$)[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
# deb-src-control(5) names, with a version or an architecture as apt-get takes them.
DEBIAN_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(?::[a-z0-9]+)?(?:=[A-Za-z0-9.+~:-]+)?")
# The axes that an existing image decides, and those that are chosen for what is added to it; NCCL may be replaced.
IMAGE_AXES = ("base", "python", "pytorch", "cuda", "nccl", "platform")
ONTO_AXES = (EFA_INSTALLER.name, AWS_OFI_NCCL.name, nccl.NAME, nccl_tests.GPU, "fallback", *sorted(axes.OPTIONAL))
REFERENCE = re.compile(r"[a-z0-9][\w.:/-]*@sha256:[0-9a-f]{64}")
OPTIONAL_STAGES = ("ssh",)  # that any target may have by `with`, and that have no version

# For editors, which read the models as a JSON schema.
AXIS_NAMES: JsonDict = {"propertyNames": {"enum": [*axes.BY_NAME]}}

Row = dict[str, str]


def _normalized(name: str) -> str:
    if not is_normalized_name(name):
        raise ValueError(f"{name!r} is no package's name: write {canonicalize_name(name)}")
    return name


PackageName = Annotated[str, AfterValidator(_normalized)]
DebianPackage = Annotated[str, must_match(DEBIAN_PACKAGE, "is no Debian package: write name or name=version")]
TargetName = Annotated[
    str, must_match(NAME, "cannot name an image: take up to 100 small letters, digits, and - between them")
]


class Exclude(Strict):
    """Rows of a target's matrix that are not built, though they might work."""

    when: dict[str, Words] = Field(
        description="Axes and their values: a row that has one of each is not built.", json_schema_extra=AXIS_NAMES
    )
    reason: str = Field(description="Why, as `invoke plan` shows it.")

    def matches(self, row: Mapping[str, str]) -> bool:
        """Return whether `row` is excluded."""
        return all(row.get(axis) in values for axis, values in self.when.items())


class PackageOptions(Strict):
    """The treatment of one Python package in a way of its own."""

    env: Variables = Field(default_factory=dict, description="Variables of its build, if it is built here.")
    patch: str | None = Field(
        default=None, description="A patch beside matrix.yaml that its source gets, as `git diff` writes it."
    )
    no_deps: str | None = Field(
        default=None, min_length=1, description="Why what it requires is not installed with it, as by pip's --no-deps."
    )


class Target(TargetAdditions):
    """A target: what a user names to plan, build and publish."""

    summary: str = Field(description="What the image is for, in a line.")
    fabric: Fabric = Field(description="The network: efa (AWS) or erdma (Alibaba Cloud).")
    like: str | None = Field(
        default=None, description="Another target, of this file or built in, whose fields this one inherits."
    )
    template: str | None = Field(
        default=None, description="The list of stages, dockerfiles/targets/NAME.j2; by default the target's own name."
    )
    with_: tuple[str, ...] = Field(
        default=(),
        alias="with",
        description="Parts beside those of the template, each in its newest version: gdrcopy, nccl-tests, nixl, ssh, …",
    )
    onto: str | None = Field(
        default=None,
        description="An image that exists, NAME@sha256:…: the fabric is added to it, and its own parts stay.",
    )
    python_packages: tuple[str, ...] = Field(
        default=(),
        description="Python packages beside torch: name>=1.2, ./wheels/x.whl, ./project[extra], name @ git+…@COMMIT.",
    )
    requirements: str | None = Field(
        default=None, description="A requirements file of pip's form beside matrix.yaml: more Python packages."
    )
    constraints: str | None = Field(
        default=None, description="A constraints file: limits for versions of packages that others bring."
    )
    source_packages: tuple[PackageName, ...] = Field(
        default=(), description="Names of Python packages that may come without a wheel, and are then built."
    )
    package_options: dict[PackageName, PackageOptions] = Field(
        default_factory=dict, description="Python packages, by name, that are built or installed in a way of their own."
    )
    debian_packages: tuple[DebianPackage, ...] = Field(
        default=(), description="Packages of the base's archive: name or name=version."
    )
    compiler: bool = Field(
        default=False, description="Whether gcc and Python's headers are in the image, for Triton and torch.compile."
    )
    default: Row = Field(
        description="The default image: a value for each axis that is chosen; the other axes follow.",
        json_schema_extra=AXIS_NAMES,
    )
    values: dict[str, Words] = Field(
        default_factory=dict,
        description="Further values of axes; `--all` builds every combination.",
        json_schema_extra=AXIS_NAMES,
    )
    exclude: tuple[Exclude, ...] = Field(default=(), description="Combinations of `values` that are not built.")

    def complete(self, changes: Mapping[str, str] | None = None) -> Row:
        """Return the default row with `changes` and all axes that follow from them."""
        compiled = {nccl_tests.GPU: gpus.ALL_GPUS} if self.source_packages else {}
        parts = {name: axes.NEWEST for name in self.with_ if name in axes.OPTIONAL}
        return axes.complete_row(compiled | parts | self.default | dict(changes or {}))

    @property
    def no_deps(self) -> dict[str, str]:
        """Return the packages without what they require, by name, with the reason."""
        return {name: options.no_deps for name, options in self.package_options.items() if options.no_deps}

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the parts of `with` that are stages without a version."""
        return tuple(name for name in self.with_ if name not in axes.OPTIONAL)

    def rows(self) -> list[Row]:
        """Return the rows of the whole matrix, the default row first."""
        names = list(self.values)
        combined = (dict(zip(names, combination, strict=True)) for combination in product(*self.values.values()))
        rows = [self.default | change for change in combined]
        included = [row for row in rows if not any(exclude.matches(row) for exclude in self.exclude)]
        return sorted(included, key=lambda row: row != self.default)


class Matrix(Document):
    """matrix.yaml."""

    targets: dict[TargetName, Target] = Field(description="What can be built, by name.")

    @classmethod
    def expanded(cls, data: Any) -> tuple[Any, list[tuple[YamlPath, str]]]:
        """Return the targets, each with `like` merged with the target that it names; and the problems."""
        written = data.get("targets") if isinstance(data, dict) else None
        if not isinstance(written, dict):
            return data, []
        problems: list[tuple[YamlPath, str]] = []
        targets = {}
        for name, target in written.items():
            try:
                targets[name] = inheritance.merged_target(name, written)
            except RefusedError as error:
                problems.append((("targets", name, "like"), str(error).replace("\n", ": ")))
                targets[name] = target
        return {**data, "targets": targets}, problems

    def problems(self) -> Iterator[tuple[YamlPath, str]]:
        """Yield what contradicts other fields, and axes that are unknown or unused."""
        if not self.targets:
            yield ("targets",), "there is no target: add one"
        for name, target in self.targets.items():
            for steps, sentence in _problems(target):
                yield ("targets", name, *steps), sentence

    def target(self, name: str) -> Target:
        """Return the target of that name. Raises RefusedError for an unknown one."""
        if name not in self.targets:
            raise RefusedError(f"{name}: no such target\n{suggestion(name, self.targets)}")
        return self.targets[name]

    def check(self, facts: Facts) -> None:
        """Raise RefusedError, with file and line, for a value that the facts do not know."""
        wrong: list[str] = []
        for name, target in self.targets.items():
            for steps, axis, value in written_values(target):
                try:
                    axes.require_value(axis, value, facts)
                except RefusedError as error:
                    problem, _, fix = str(error).partition("\n")
                    wrong.append(f"{self.where('targets', name, *steps)}: {problem}: {fix}")
        if wrong:
            raise RefusedError("\n".join(wrong))


def load(path: Path = paths.MATRIX) -> Matrix:
    """Return matrix.yaml. Raises RefusedError, with file and line, where it is invalid."""
    if not files.exists(path):
        start = "change to the folder that has it, or start one with `rdma-images init`"
        raise RefusedError(f"{path}: no such file\n{start if paths.INSTALLED else 'restore it'}")
    return yaml_file.load(path, Matrix)


def written_values(target: Target) -> Iterator[tuple[YamlPath, str, str]]:
    """Yield every value written in a target: its place, its axis, itself."""
    yield from ((("default", axis), axis, value) for axis, value in target.default.items())
    for axis, values in target.values.items():
        yield from ((("values", axis, step), axis, value) for step, value in enumerate(values))
    for number, exclude in enumerate(target.exclude):
        for axis, values in exclude.when.items():
            yield from ((("exclude", number, "when", axis, step), axis, value) for step, value in enumerate(values))


def _problems(target: Target) -> Iterator[tuple[YamlPath, str]]:
    """Yield what is wrong in one target, place by place."""
    for steps, axis, _ in written_values(target):
        if axis not in axes.BY_NAME:
            yield steps, f"{axis}: no such axis: {suggestion(axis, axes.BY_NAME)}"
    yield from _part_problems(target)
    for number, text in enumerate(target.python_packages):
        if sentence := _requirement_problem(text, target):
            yield ("python-packages", number), sentence
    yield from target.addition_problems()
    defaults = target.complete()
    yield from _onto_problems(target)
    for component in components.ALL:
        decided = target.onto and component.name in IMAGE_AXES
        if target.fabric in component.required_for and component.name not in defaults and not decided:
            yield ("default",), f"the default row of a target for {target.fabric} has no {component.name}: add one"
    for axis, values in target.values.items():
        if axis in axes.BY_NAME and axis not in defaults:
            yield ("values", axis), f"the default row has no {axis}: remove the values, or add it there"
        elif axis in defaults and defaults[axis] not in values:
            hint = suggestion(defaults[axis], values)
            yield ("values", axis), f"the default {axis} {defaults[axis]!r} is not among the values: add it, or {hint}"


def _part_problems(target: Target) -> Iterator[tuple[YamlPath, str]]:
    """Yield what is wrong with `with`."""
    for number, name in enumerate(target.with_):
        if name in target.default:
            yield ("with", number), f"the default row chooses {name} already: remove it here"
        elif name not in axes.OPTIONAL and name not in OPTIONAL_STAGES:
            yield ("with", number), f"no part {name!r}: {suggestion(name, (*sorted(axes.OPTIONAL), *OPTIONAL_STAGES))}"


def reference_problem(ref: str) -> str | None:
    """Return why `ref` cannot name an image that a fabric is added to; None where it can."""
    if REFERENCE.fullmatch(ref):
        return None
    name = ref.partition("@")[0] or "NAME"
    return (
        f"{ref}: names no digest, and a tag can be moved\n"
        f"write NAME@sha256:…; `docker image inspect --format '{{{{.Id}}}} {{{{.RepoDigests}}}}' {name}` shows it"
    )


def _onto_problems(target: Target) -> Iterator[tuple[YamlPath, str]]:
    """Yield the fields that a target with `onto` must leave to that image."""
    if not target.onto:
        return
    if problem := reference_problem(target.onto):
        yield ("onto",), problem.replace("\n", ": ")
    for steps, axis, _ in written_values(target):
        if axis in axes.BY_NAME and axis not in ONTO_AXES:
            yield steps, f"the image of `onto` decides its {axis}, or has none: remove it"
    if target.source_packages:
        yield ("source-packages",), "nothing is compiled for the Python of the image of `onto`: remove this"
    if target.template:
        yield ("template",), "the image of `onto` takes its place: remove this"


def _requirement(text: str) -> Requirement | None:
    """Return an entry of python-packages as a requirement; None if it cannot be parsed."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _requirement_problem(text: str, target: Target) -> str | None:
    """Return what is wrong with one of a target's python-packages."""
    if local_packages.is_address(text):  # read by the plan of this target alone
        return None
    requirement = _requirement(text)
    if requirement is None or requirement.url:
        return f"{text!r} is no Python package: write name, name==1.2, ./PATH or the like"
    name = canonicalize_name(requirement.name)
    axis = components.axis_of_wheel(name)
    decided = {*target.complete(), *(IMAGE_AXES if target.onto else ())}
    return f"the axis {axis} decides the version of {name}: remove it here" if axis in decided else None


def package_names(target: Target) -> frozenset[str]:
    """Return the packages that a target names in matrix.yaml, and the repositories of these, in the normal form."""
    requirements = [requirement for requirement in map(_requirement, target.python_packages) if requirement]
    folders = (PurePosixPath((requirement.url or "").partition("#")[0]).name for requirement in requirements)
    repositories = (name.partition("@")[0].removesuffix(".git") for name in folders)
    return frozenset(map(canonicalize_name, (*(requirement.name for requirement in requirements), *repositories)))
