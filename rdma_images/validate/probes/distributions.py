"""The installed Python packages: which of them use GPUs, which may be broken, and what to import of each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rdma_images.validate.probes import elf, loader, packages, requires_dist, rootfs, stack_users

MAX_RECORD = 8 << 20  # bytes: torch's has one million
MAX_MODULES = 4  # of a package that has none of its own name
FRAMEWORKS = ("torch", "jax", "jaxlib")
IMPORTED_FIRST = "torch"  # by torch.imports, too
EXTENSION_SUFFIX = re.compile(r"\.(?:cpython-\w+(?:-[\w-]+)?|abi3)?\.?so$|\.so$")
INTERNAL_MODULE = re.compile(r"_.*|(?:tests?|testing|examples?|samples?|docs?|benchmarks?|scripts?)\d*")
DRIVER_LIBRARY = re.compile(r"libcuda\.|libnvidia-")
SYSTEM_FOLDER = "/usr/lib/python3/dist-packages"  # whose packages a distribution keeps together


class Distribution(NamedTuple):
    """An installed package, its requirements and its files.

    Attributes:
        requires: The names of the packages that it requires.
        extras: The names of those that only its extras require.
        modules: The modules to import.
        compiled: The paths of its compiled files.
        names: The first names of all its modules.
        folder: The folder of packages in which it lies.
        requirements: What it requires, with the versions and when.
        lost: A file of it that is not as it was installed; "" for none.
    """

    name: str
    version: str
    requires: frozenset[str]
    extras: frozenset[str]
    modules: list[str]
    compiled: list[str]
    names: frozenset[str]
    folder: str
    requirements: list[requires_dist.PackageRequirement]
    lost: str


def read_distributions(root: rootfs.Root, folders: Iterable[str]) -> Iterator[Distribution]:
    """Yield each package in `folders`; of two of a name, the first."""
    names = set()
    order = list(map(root.real, filter(None, folders)))
    records = sorted(packages.metadata_files(root, order), key=lambda pair: order.index(pair[0]))
    for folder, record in records:
        name, version = packages.name_and_version(root, record)
        if name in names:
            continue
        names.add(name)
        required = requires_dist.read_requirements(packages.read_fields(root, record))
        home = os.path.dirname(record)
        files = _file_sizes(root.text(home + "/RECORD", MAX_RECORD) or "")
        top_level = (root.text(home + "/top_level.txt", packages.MAX_METADATA_BYTES) or "").split()
        yield Distribution(
            name,
            version,
            frozenset(requirement.name for requirement in required if not requirement.is_optional),
            frozenset(requirement.name for requirement in required if requirement.is_optional),
            choose_modules(name, importable_modules(files) if files else top_level),
            ["%s/%s" % (folder, path) for path in files if stack_users.SHARED.fullmatch(path) and path[0] not in "./"],
            frozenset(module.partition(".")[0] for module in importable_modules(files) or top_level),
            folder,
            required,
            lost_file(folder, files),
        )


def overwritten(root: rootfs.Root, installed: Iterable[Distribution]) -> list[dict[str, str]]:
    """Return each `package` of which an `other` one has overwritten a `file`, both with their versions."""
    rows = []
    for damaged in (package for package in installed if package.lost):
        if not root.exists("%s/%s" % (damaged.folder, damaged.lost)):
            continue
        for _, record in packages.metadata_files(root, [damaged.folder]):
            name, version = packages.name_and_version(root, record)
            listed = _file_sizes(root.text(os.path.dirname(record) + "/RECORD", MAX_RECORD) or "")
            if name != damaged.name and damaged.lost in listed:
                title = "%s %s" % (damaged.name, damaged.version)
                rows.append({"package": title, "other": "%s %s" % (name, version), "file": damaged.lost})
    return rows


def _file_sizes(record: str) -> dict[str, int]:
    """Return the files that a RECORD lists, with their sizes in bytes."""
    rows = (line.rsplit(",", 2) for line in record.splitlines())
    return {row[0].strip('"'): int(row[2]) if row[2].isdigit() else 1 for row in rows if len(row) == 3}


def importable_modules(files: Mapping[str, int]) -> list[str]:
    """Return the modules with one name, or two where the first is a namespace's alone.

    Empty ones, as those of NVIDIA's wheels, bring nothing.
    """
    names, namespaces = {}, {}
    for path, size in files.items():
        parts = path.split("/")
        stem = parts[-1][:-3] if parts[-1].endswith(".py") else EXTENSION_SUFFIX.sub("", parts[-1])
        is_module = stem != parts[-1] and stem.isidentifier()
        if len(parts) == 1 and is_module:
            names[stem] = size
        elif parts[1:] == ["__init__.py"]:
            names[parts[0]] = size
        elif parts[2:] == ["__init__.py"] and parts[0].isidentifier() and parts[1].isidentifier():
            namespaces["%s.%s" % (parts[0], parts[1])] = size
    inner = {name: size for name, size in namespaces.items() if name.partition(".")[0] not in names}
    return sorted(name for name, size in {**names, **inner}.items() if size)


def choose_modules(package: str, names: Iterable[str]) -> list[str]:
    """Return the modules to import of a package.

    The one of its name, else those that its name begins with, or its only one. Those of a namespace all count. Others
    beside them may be what a build left, as flashinfer's build_backend.
    """
    module_name = package.replace("-", "_")
    public = [name for name in names if not any(map(INTERNAL_MODULE.fullmatch, name.split(".")))]
    related = [name for name in public if module_name.startswith(name.lower()) or "." in name]
    return (
        [name for name in public if name.lower() == module_name] or related[:MAX_MODULES] or public * (len(public) == 1)
    )


def select_gpu_stack(distributions: Iterable[Distribution]) -> list[Distribution]:
    """Return the packages that use torch, jax or libraries for GPUs, or lack some.

    torch itself is left out. Of those that the frameworks require themselves, these are the compiled ones. What
    requires a framework for an extra alone counts: it is made to be used with it.
    """
    by_name = {distribution.name: distribution for distribution in distributions}
    users = set(FRAMEWORKS)
    is_growing = True
    while is_growing:
        more = {name for name, distribution in by_name.items() if name not in users and distribution.requires & users}
        users |= more
        is_growing = bool(more)
    required = {name for framework in FRAMEWORKS if framework in by_name for name in by_name[framework].requires}
    bundled = {os.path.basename(path) for distribution in by_name.values() for path in distribution.compiled}
    absent: dict[str, bool] = {}
    return [
        distribution
        for name, distribution in by_name.items()
        if distribution.modules
        and name != IMPORTED_FIRST
        and (
            name in users
            or (name in required and distribution.compiled)
            or distribution.extras.intersection(FRAMEWORKS)
            or any(
                stack_users.STACK.match(needed) or (needed not in bundled and _is_absent(needed, absent))
                for path in distribution.compiled
                for needed in _needed(path)
            )
        )
    ]


def select_doubted(distributions: Sequence[Distribution], gpu_stack: Iterable[Distribution]) -> list[Distribution]:
    """Return the packages beside the GPU stack that may be broken, or that nothing requires.

    Those are compiled, lack a file or a requirement, or are what no other package requires.
    """
    versions = {distribution.name: distribution.version for distribution in distributions}
    required = {name for distribution in distributions for name in distribution.requires | distribution.extras}
    passed_over = {IMPORTED_FIRST, *(distribution.name for distribution in gpu_stack)}
    return [
        distribution
        for distribution in distributions
        if distribution.modules
        and distribution.name not in passed_over
        and distribution.folder != SYSTEM_FOLDER
        and (
            distribution.lost
            or distribution.compiled
            or distribution.name not in required
            or any(requirement.is_unmet(versions.get(requirement.name)) for requirement in distribution.requirements)
        )
    ]


def _is_absent(library: str, absent: dict[str, bool]) -> bool:
    """Return whether the loader finds no `library`; `absent` keeps its answers.

    The driver's are never absent: only a host with GPUs has them.
    """
    if library not in absent:
        absent[library] = not DRIVER_LIBRARY.match(library) and not loader.resolved(library)["file"]
    return absent[library]


def _needed(path: str) -> list[str]:
    try:
        needed: list[str] = elf.library(path)["needed"]
    except (elf.NotElf, OSError):
        return []
    return needed


def lost_file(folder: str, files: Mapping[str, int]) -> str:
    """Return the first module in a RECORD that is not there, else one of another size.

    "" where all are as they were installed.
    """
    changed = ""
    for path, size in files.items():
        if path.endswith((".py", ".so")) and path[0] not in "./":
            try:
                actual_size = os.stat("%s/%s" % (folder, path)).st_size
            except OSError:
                return path
            changed = changed or (path if size > 1 and actual_size != size else "")
    return changed
