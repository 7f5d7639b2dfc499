"""Programs and libraries that need the GPU stack, wherever they lie, and those that need a newer glibc."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rdma_images.validate.probes import conditions, elf, rootfs

SHARED = re.compile(r".*\.so(?:\.[\w.]+)?")
# Libraries for GPUs, and those that reach a network for them.
STACK = re.compile(
    r"lib(?:cuda|cudart|cublas(?:Lt)?|cudnn|cufft|cufile|curand|cusolver|cusparse|amdhip64|rccl|c10|torch|nccl|mpi"
    r"|ibverbs|rdmacm|fabric|uc[pst]|nvshmem_host|gdrapi)[\w-]*\.so"
)
PROGRAM_FOLDERS = ("bin", "sbin", "libexec")
# What brings its own libraries and is complete, or what runs on a developer's machine: torch and NVIDIA's wheels, the
# CUDA toolkit with its profilers, Python's own modules, and parts that components of Open MPI share, which get Open
# MPI's library with the component (libmca_common_ofi of Debian 12 does not name it).
PASSED_OVER = re.compile(
    r".*-packages/(?:torch|functorch|triton|nvidia|tensorrt\w*)/.*|.*/(?:lib-dynload|gconv|stubs)/[^/]+"
    r"|/usr/local/cuda[^/]*/.*|.*/nsight[^/]*/.*|.*/libmca_common_[^/]+"
)
# Parts that a program opens by their paths where it needs them, and goes on without.
OPTIONAL = re.compile(
    r".*/(?:(?:plugins?|backends?|providers?|openmpi|pmix|prte|ucx|ucc|libfabric|libibverbs)/[^/]+|libplugin_[^/]+)"
)
INSTALLED_BY_HAND = re.compile(r"/usr/local/s?bin/[^/]+")  # programs that no distribution keeps whole
TRIED_OUT = re.compile(r".*/(?:tests?|examples?|samples?|benchmarks?)/.*")
GLIBC = re.compile(r"lib(?:c\.so\.6|m\.so\.6|pthread\.so\.0|dl\.so\.2|rt\.so\.1)")
MAX_USERS = 120  # files about which the loader is asked: some 10 ms each


class ElfFiles:
    """The files that the loader may map: paths without links, and names with them."""

    def __init__(self) -> None:
        """Begin without a file."""
        self.paths: list[str] = []
        self.names: set[str] = set()

    def noted(self, entries: Iterable[rootfs.RootEntry]) -> Iterator[rootfs.RootEntry]:
        """Yield `entries` as they are, and note those that may be mapped."""
        for entry in entries:
            name = os.path.basename(entry.path)
            if ".so" in name and SHARED.fullmatch(name) and not stat.S_ISDIR(entry.mode):
                self.names.add(name)
                if stat.S_ISREG(entry.mode):
                    self.paths.append(entry.path)
            elif is_program(entry):
                self.paths.append(entry.path)
            yield entry


def is_program(entry: rootfs.RootEntry) -> bool:
    """Return whether an entry may be a program that was compiled, by its folder and name."""
    folder, name = os.path.split(entry.path)
    executable = stat.S_ISREG(entry.mode) and entry.mode & 0o111 and entry.size > elf.HEADER
    return bool(executable and "." not in name and os.path.basename(folder) in PROGRAM_FOLDERS)


def is_shared(path: str) -> bool:
    """Return whether a path has the name of a shared library."""
    return bool(SHARED.fullmatch(path))


def foreign_programs(root: rootfs.Root, paths: Iterable[str], machine: str) -> dict[str, str]:
    """Return the programs among `paths` for another machine, with that."""
    programs = [path for path in paths if not is_shared(path) and not PASSED_OVER.fullmatch(path)]
    why_not = {path: conditions.path_condition(root, path, machine) for path in programs}
    return {path: why.partition(" ")[2] for path, why in why_not.items() if conditions.condition_kind(why) == "machine"}


def stack_users(paths: Iterable[str], needed: Callable[[str], list[str]]) -> list[str]:
    """Return those of `paths` that need the GPU stack, directly or by one another.

    Programs come first, and those that somebody installed by hand count whatever they need. `needed` returns what the
    file at a path names as needed.
    """
    needed_by_path = {
        p: needed(p) for p in paths if not any(w.fullmatch(p) for w in (PASSED_OVER, OPTIONAL, TRIED_OUT))
    }
    users = {path for path, names in needed_by_path.items() if any(map(STACK.match, names))}
    is_growing = True
    while is_growing:
        names_of_users = {os.path.basename(path) for path in users if is_shared(path)}
        more = {
            path for path, names in needed_by_path.items() if path not in users and names_of_users.intersection(names)
        }
        users |= more
        is_growing = bool(more)
    users |= {path for path, names in needed_by_path.items() if names and INSTALLED_BY_HAND.fullmatch(path)}
    return sorted(users, key=lambda path: (is_shared(path), path))[:MAX_USERS]


def required_versions(path: str) -> dict[str, list[str]]:
    """Return the versions that a file asks of libraries; nothing for no ELF file."""
    versions_by_library: dict[str, list[str]] = {}
    try:
        with elf.opened(path) as data:
            for library, version in elf.needed_versions(data, elf.section_table(data, path)):
                versions_by_library.setdefault(library, []).append(version)
    except (OSError, elf.NotElf):
        return {}
    return versions_by_library


def glibc_versions(path: str) -> dict[str, list[str]]:
    """Return the versions that the file at `path` asks of glibc's libraries, by library.

    Returns:
        Nothing for no ELF file.
    """
    return {library: versions for library, versions in required_versions(path).items() if GLIBC.fullmatch(library)}


def defined_versions(path: str) -> list[str]:
    """Return the versions that the library at `path` defines; nothing where it cannot be read."""
    try:
        with elf.opened(path) as data:
            return list(elf.defined_versions(data, elf.section_table(data, path)))
    except (OSError, elf.NotElf):
        return []


def version_faults(root: rootfs.Root, path: str, libraries: Mapping[str, str]) -> list[str]:
    """Return the versions that `path` needs and `libraries` lack, in glibc's words.

    Args:
        path: A program or library.
        libraries: The files that the loader takes, by name.
    """
    defined = {name: root.apply(defined_versions, file) for name, file in libraries.items()}
    return [
        "%s: version `%s' not found (required by %s)" % (libraries[name], version, path)
        for name, versions in root.apply(required_versions, path).items()
        for version in versions
        if defined.get(name) and version not in defined[name]
    ]


def newer_glibc(root: rootfs.Root, paths: Iterable[str], loaders: Any) -> dict[str, str]:
    """Return the glibc that files ask for in vain: {path: "GLIBC_2.38 of libc.so.6"}.

    `loaders` answers as libraries.ImageLoader does.
    """
    defined: dict[str, list[str]] = {}
    newer: dict[str, str] = {}
    for path in paths:
        if any(passed.fullmatch(path) for passed in (PASSED_OVER, OPTIONAL, TRIED_OUT)):
            continue
        for library, versions in root.apply(glibc_versions, path).items():
            if library not in defined:
                file = loaders.resolved(library)["file"]
                defined[library] = root.apply(defined_versions, file) if file else []
            missing = [version for version in versions if defined[library] and version not in defined[library]]
            if missing and path not in newer:
                newer[path] = "%s of %s" % (max(missing, key=_number), library)
    return newer


def run_path(linkage: Mapping[str, Any], path: str) -> list[str]:
    """Return the folders of the run path that the linkage of the file at `path` has."""
    return [elf.expand(folder, path) for folder in (*linkage.get("rpath", ()), *linkage.get("runpath", ()))]


def _number(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
