"""The compilation of a target's Python packages that have no wheel."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import Field, PositiveInt

from rdma_images.components import cuda, gpus, nccl_tests
from rdma_images.components.base import BaseDetails
from rdma_images.core import files, paths, versions
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image, SourceBuild
from rdma_images.facts import Facts
from rdma_images.facts.facts_file import Fact, FactsFile
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.matrix import PackageOptions, Target
from rdma_images.plan.refusals import BrokenRule

GPUS = "{architectures}"  # in a variable; becomes "80;90"


class SourcePackage(Fact):
    """The needs of a package's build."""

    variables: dict[str, str] = Field(default_factory=dict)
    cuda: bool = False  # whether it cannot be built without a compiler of CUDA
    memory: PositiveInt = SourceBuild.memory
    core_hours: int = SourceBuild.core_hours
    network: bool = False  # whether its build fetches what its source lacks
    debian_packages: tuple[str, ...] = ()  # that its build needs beside a compiler
    no_deps: bool = False  # whether it needs nothing beside torch, and its source cannot be asked
    why: str


class SourcePackages(FactsFile):
    """facts/source-packages.yaml; packages by their names in the normal form."""

    FILE = "source-packages.yaml"

    packages: dict[str, SourcePackage]


def source_packages(candidate: Candidate, target: Target, facts: Facts) -> tuple[str, ...]:
    """Return the packages that may come without a wheel: the target's, and components that have none."""
    table = facts.table(SourcePackages).packages
    return (*target.source_packages, *(name for name in table if name in candidate))


def no_deps(packages: Iterable[str], target: Target, facts: Facts) -> dict[str, str]:
    """Return the packages that are installed without what they require, by name, with the reason."""
    table = facts.table(SourcePackages).packages
    known = {name: table[name].why for name in packages if name in table and table[name].no_deps}
    return known | target.no_deps


def architectures(candidate: Candidate, packages: Iterable[str], facts: Facts) -> tuple[str, ...]:
    """Return the GPUs to compile for, ("sm_80", "sm_90"); empty without a CUDA compiler."""
    if not packages or not cuda.toolkit_requirements(candidate[cuda.NAME], facts):
        return ()
    choice = candidate.axes.get(nccl_tests.GPU, gpus.ALL_GPUS)
    return gpus.resolve_architectures(choice, candidate.fabric, candidate[cuda.NAME], facts)


def source_builds(
    candidate: Candidate,
    packages: Iterable[str],
    options: Mapping[str, PackageOptions],
    facts: Facts,
    where: Callable[..., str],
) -> dict[str, SourceBuild]:
    """Return the build settings of the packages that have their own, by name.

    Args:
        packages: Those that may come without a wheel.
        options: What the target says of packages.
        where: Returns file and line of a part of the target.

    Raises:
        RefusedError: A patch cannot be read.
    """
    compiled_for = architectures(candidate, packages, facts)
    numbers = ";".join(architecture.removeprefix("sm_") for architecture in compiled_for)
    table = facts.table(SourcePackages).packages
    builds = {
        name: SourceBuild(
            {k: v.replace(GPUS, numbers) for k, v in row.variables.items() if numbers or GPUS not in v},
            row.memory,
            row.core_hours,
            row.network,
            row.debian_packages,
        )
        for name, row in table.items()
        if name in packages
    }
    for name, own in options.items():
        if own.env or own.patch:
            known = builds.get(name, SourceBuild())
            patch = _read_patch(own.patch, where("package-options", name, "patch")) if own.patch else ""
            builds[name] = replace(known, variables=known.variables | own.env, patch=patch, is_own=True)
    return builds


def require_named(image: Image, options: Iterable[str], where: Callable[..., str]) -> None:
    """Raise RefusedError, with file and line, for a name in package-options that the image does not have."""
    named = {canonicalize_name(Requirement(line).name) for line in image.python_packages}
    for name in options:
        if name not in named.union(image.source_packages):
            fix = f"correct the name, remove it, or add {name} to python-packages"
            raise RefusedError(f"{where('package-options', name)}: {name} is none of the target's packages\n{fix}")


def _read_patch(name: str, where: str) -> str:
    """Return the text of a patch beside matrix.yaml. Raises RefusedError."""
    file = paths.PROJECT / name
    if not file.resolve().is_relative_to(paths.PROJECT.resolve()):
        raise RefusedError(f"{where}: {name}: outside of the folder of matrix.yaml\ncopy it there, and write its path")
    if not files.exists(file):
        raise RefusedError(f"{where}: {name}: no such file\ncorrect its name, or write it")
    return files.read_text(file)


def compiler_rules(image: Image, facts: Facts) -> tuple[BrokenRule, ...]:
    """Return the source packages that need a CUDA compiler, if the image has none."""
    table = facts.table(SourcePackages).packages
    needing = [name for name in image.source_packages if name in table and table[name].cuda]
    if not needing or image.toolkit or (image.details(BaseDetails).cuda and "-devel-" in image.axes["base"]):
        return ()
    able = [
        version
        for version, release in facts.torch.releases.items()
        if cuda.toolkit_requirements(release.cuda, facts) and image.version("python") in release.python
    ]
    verb = "compiles" if len(needing) == 1 else "compile"
    reason = (
        f"{', '.join(needing)} {verb} CUDA code, and no wheel has a compiler of CUDA {image.version(cuda.NAME)}\n"
        + (f"--set pytorch={max(able, key=Version)}, or " if able else "")
        + "leave them out of the image"
    )
    major = facts.cuda.majors[str(versions.major(image.version(cuda.NAME)))]
    relates = {cuda.NAME: image.version(cuda.NAME)}
    return (BrokenRule("compiler-of-cuda", relates, reason, facts.cuda.cite(major, "toolkit")),)
