"""The libraries of an image that a job uses: NCCL's, its network plugin, what they need, the verbs providers."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from rdma_images.chain import links
from rdma_images.chain.nccl_environment import DEFAULT_VERSION, nccl_environment, plugin_names, started_environment
from rdma_images.chain.verbs import PROVIDER, VERBS, opened_providers
from rdma_images.inspection.inspection import (
    Inspection,
    InstalledNccl,
    base_name,
    describe_missing_libraries,
    missing_in,
    nccl_in_use,
)
from rdma_images.inspection.measurements import Closure, Files, Libraries, PluginFile
from rdma_images.validate.validator import skip
from validators.support.broken_files import BrokenFile, broken, broken_named

LIBFABRIC, LIBEFA, LIBNCCL = "libfabric.so.1", "libefa.so.1", "libnccl.so.2"
GLIBC = "libc.so.6"
NO_LIBRARY = "a file by that name is no library: see libraries.intact"  # why a check of it is skipped
NUMBER = re.compile(r"\d+")
CUDA_NUMBER = re.compile(r"(cuda)_?\d{2,3}(?!\d)[\w-]*(?=\.so)")  # as in libbitsandbytes_cuda120_nocublaslt.so
TORCH_NUMBER = re.compile(r"torch_?(\d{2,3})\b[^/]*$")


def tried_plugin_names(inspection: Inspection, libraries: Libraries, nccl: str) -> list[str]:
    """Return the names by which the NCCL at `nccl` opens a network plugin, in its order; empty where it opens none."""
    version = (libraries.nccl[nccl].version if nccl in libraries.nccl else "") or DEFAULT_VERSION
    return plugin_names(version, nccl_environment(inspection))


def plugin_path(inspection: Inspection, libraries: Libraries, nccl: str) -> str | None:
    """Return the plugin that the loader opens, or else finds, for the NCCL at `nccl`."""
    answer = links.resolved_plugin(libraries, tried_plugin_names(inspection, libraries, nccl))
    return answer.file if answer else None


def provider_files(files: Files, fabric: str) -> list[str]:
    """Return the verbs providers of a fabric, of any ABI and wherever they lie."""
    return [p for p in files.library_files if (m := PROVIDER.fullmatch(base_name(p))) and m.group(1) == fabric]


def loads_nccl(files: Files, libraries: Libraries) -> bool:
    """Return whether the image has NCCL, torch for CUDA, or a program of nccl-tests."""
    torch = any(base_name(path).startswith("libtorch_cuda.so") for path in files.library_files)
    return bool(libraries.nccl) or torch or any(libraries.gpu_code.values())


def directly_opened(inspection: Inspection, files: Files, libraries: Libraries) -> list[str]:
    """Return the files that a job opens by themselves.

    NCCL, its plugin, the fabric's libraries and its verbs provider.
    """
    fabric, nccl = inspection.expected.fabric, nccl_in_use(inspection)
    paths = [nccl.path] if nccl else []
    if nccl and fabric == "efa" and (plugin := plugin_path(inspection, libraries, nccl.path)):
        paths.append(plugin)
    names = {"efa": (LIBFABRIC, LIBEFA, VERBS), "erdma": (VERBS,)}.get(str(fabric), ())
    paths += [libraries.resolved[name].file for name in names if libraries.resolved[name].file]
    paths += [path for path, driver in opened_providers(files, libraries).items() if driver == fabric]
    return list(dict.fromkeys(paths))


def torch_libraries(libraries: Libraries) -> list[str]:
    """Return the shared libraries of torch whose closure was read."""
    return [path for path in libraries.closures if "/torch/lib/" in path]


def missing_for_torch(libraries: Libraries) -> list[str]:
    """Return the libraries that torch misses, except those that a check of NCCL reports."""
    missing = {name for path in torch_libraries(libraries) for name in missing_in(libraries, path)}
    reported = {name for path in libraries.nccl for name in missing_in(libraries, path)}
    return sorted(missing - reported - (set() if libraries.nccl else {LIBNCCL}))


def without_alternatives(faults: Mapping[str, str], torch: str) -> dict[str, str]:
    """Return the modules' faults, by path; "" where the package takes another module.

    That is one whose name differs in numbers alone, or from a number of CUDA on, and loads; or all that have a version
    of torch in their names where none is for the installed `torch`.
    """
    loadable = {_kind(path) for path, fault in faults.items() if not fault}
    version = "".join(torch.split(".")[:2])
    return {
        path: "" if _kind(path) in loadable or ((match := TORCH_NUMBER.search(path)) and match[1] != version) else fault
        for path, fault in faults.items()
    }


def _kind(path: str) -> str:
    """Return a path without the numbers by which a package's alternative modules differ."""
    return NUMBER.sub("", CUDA_NUMBER.sub(r"\1", path))


def closure(libraries: Libraries, path: str) -> Closure:
    """Return the libraries that `path` needs; none if that was not read."""
    return libraries.closures.get(path, Closure())


def describe_lack(inspection: Inspection, missing: list[str]) -> str:
    """Return in words what a library lacks; glibc, where the image has none, as Alpine."""
    if GLIBC in missing:
        name = (
            inspection.measured.system.os.get("PRETTY_NAME", "the image") if inspection.measured.system else "the image"
        )
        return f"it is linked with glibc ({GLIBC}), and {name} has another C library, or none"
    return f"it finds no {describe_missing_libraries(inspection, missing)}"


def broken_candidates(inspection: Inspection, libraries: Libraries, name: str) -> dict[str, BrokenFile]:
    """Return the files called `name` that are no libraries, and taken for one, by path."""
    answer = libraries.resolved.get(name)
    if name == LIBNCCL:
        nccl = nccl_in_use(inspection)
        file = nccl.path if nccl else ""
    else:
        file = answer.file if answer else ""
    fault = broken(inspection, file) if file else None
    if file and not fault:
        return {}
    return broken_named(inspection, name) | ({file: fault} if fault else {})


def has_broken_file(inspection: Inspection, libraries: Libraries, *names: str) -> bool:
    """Return whether the file of a name is no library, which libraries.intact reports."""
    return any(broken_candidates(inspection, libraries, name) for name in names)


def requested_names(inspection: Inspection, files: Files, libraries: Libraries) -> list[str]:
    """Return the libraries that a job opens by name, and those that they miss."""
    fabric, nccl = inspection.expected.fabric, nccl_in_use(inspection)
    names = [LIBNCCL, *([VERBS] if fabric else [])]
    if fabric == "efa":
        plugins = tried_plugin_names(inspection, libraries, nccl.path) if nccl else []
        names += [LIBEFA, LIBFABRIC, *plugins]
    names += [
        name for path in directly_opened(inspection, files, libraries) for name in closure(libraries, path).missing
    ]
    return list(dict.fromkeys(names))


def configured_drivers(inspection: Inspection) -> list[str]:
    """Return the drivers that libibverbs loads by the image's variables."""
    environment = started_environment(inspection)
    value = environment.get("RDMAV_DRIVERS", environment.get("IBV_DRIVERS", ""))
    return [base_name(word).removeprefix("lib") for word in re.split("[:;]", value) if word]


class FoundPlugin(NamedTuple):
    """The network plugin that the loader finds for NCCL, and what was read of it."""

    path: str
    library: PluginFile


def found_plugin(inspection: Inspection, libraries: Libraries, nccl: InstalledNccl) -> FoundPlugin:
    """Return the plugin that the loader finds for NCCL; skips where it finds none."""
    if has_broken_file(inspection, libraries, *tried_plugin_names(inspection, libraries, nccl.path)):
        skip(NO_LIBRARY)
    path = plugin_path(inspection, libraries, nccl.path)
    if not path or path not in libraries.plugins:
        skip("NCCL finds no network plugin: see plugin.found")
    return FoundPlugin(path, libraries.plugins[path])
