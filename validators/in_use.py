"""The libraries of an image that a job uses: those that NCCL opens, what they need, and the verbs providers."""

import re
from collections import defaultdict
from collections.abc import Mapping

from rdma_images.chain import links
from rdma_images.chain.nccl_environment import DEFAULT_VERSION, nccl_environment, plugin_names
from rdma_images.chain.verbs import PROVIDER, VERBS, opened_providers
from rdma_images.inspection.inspection import (
    Inspection,
    base_name,
    describe_missing_libraries,
    explain_refusal,
    missing_in,
    nccl_in_use,
)
from rdma_images.inspection.measurements import Closure, Files, Libraries
from rdma_images.validate.probes.tree import IMPORTED
from validators.conditions import BrokenFile, broken, broken_named

LIBFABRIC, LIBEFA, LIBNCCL = "libfabric.so.1", "libefa.so.1", "libnccl.so.2"
GLIBC = "libc.so.6"
NO_LIBRARY = "a file by that name is no library: see libraries.intact"  # why a check of it is skipped
CUDA_LIBRARY = re.compile(
    r"lib(?:cudart|cublas(?:Lt)?|cudnn|cufft|curand|cusolver|cusparse(?:Lt)?|nvrtc|nvJitLink|nvToolsExt)\.so\.\d+"
)
NUMBER = re.compile(r"\d+")
CUDA_NUMBER = re.compile(r"(cuda)_?\d{2,3}(?!\d)[\w-]*(?=\.so)")  # as in libbitsandbytes_cuda120_nocublaslt.so
UNDEFINED_IN_TORCH = re.compile(r"undefined symbol: (_ZNK?(?:3c10|2at|5torch)\w+)")
NOT_FOUND = re.compile(r"(\S+): cannot open shared object file")
TORCH_NUMBER = re.compile(r"torch_?(\d{2,3})\b[^/]*$")


def tried_plugin_names(inspection: Inspection, libraries: Libraries, nccl: str) -> list[str]:
    """Return the names by which the NCCL at `nccl` opens a network plugin, in its order.

    Empty where NCCL_NET_PLUGIN has it open none.
    """
    version = (libraries.nccl[nccl].version if nccl in libraries.nccl else "") or DEFAULT_VERSION
    environment = nccl_environment(inspection)
    is_disabled = environment.get(links.PLUGIN_VARIABLE, "").lower() == "none"
    return [] if is_disabled else plugin_names(version, environment)


def resolved_plugin(inspection: Inspection, libraries: Libraries, nccl: str) -> str | None:
    """Return the plugin that the loader opens, or else finds, for the NCCL at `nccl`."""
    answer = links.resolved_plugin(libraries, tried_plugin_names(inspection, libraries, nccl))
    return answer.file if answer else None


def provider_files(files: Files, fabric: str) -> list[str]:
    """Return the verbs providers of a fabric, of any ABI and wherever they lie."""
    return [p for p in files.libraries if (m := PROVIDER.fullmatch(base_name(p))) and m.group(1) == fabric]


def loads_nccl(files: Files, libraries: Libraries) -> bool:
    """Return whether the image has NCCL, torch for CUDA, or a program of nccl-tests."""
    torch = any(base_name(path).startswith("libtorch_cuda.so") for path in files.libraries)
    return bool(libraries.nccl) or torch or any(libraries.gpu_code.values())


def roots(inspection: Inspection, files: Files, libraries: Libraries) -> list[str]:
    """Return the files that a job opens by themselves.

    NCCL, its plugin, the fabric's libraries and its verbs provider.
    """
    fabric, nccl = inspection.expected.fabric, nccl_in_use(inspection)
    paths = [nccl.path] if nccl else []
    if nccl and fabric == "efa" and (plugin := resolved_plugin(inspection, libraries, nccl.path)):
        paths.append(plugin)
    names = {"efa": (LIBFABRIC, LIBEFA, VERBS), "erdma": (VERBS,)}.get(str(fabric), ())
    paths += [libraries.resolved[name].file for name in names if libraries.resolved[name].file]
    paths += [path for path, driver in opened_providers(files, libraries).items() if driver == fabric]
    return list(dict.fromkeys(paths))


def torch_libraries(libraries: Libraries) -> list[str]:
    """Return the shared libraries of torch whose closure was read."""
    return [path for path in libraries.closures if "/torch/lib/" in path]


def missing_for_torch(libraries: Libraries) -> list[str]:
    """Return what torch needs and nothing answers to, without what has a check of NCCL's."""
    missing = {name for path in torch_libraries(libraries) for name in missing_in(libraries, path)}
    reported = {name for path in libraries.nccl for name in missing_in(libraries, path)}
    return sorted(missing - reported - (set() if libraries.nccl else {LIBNCCL}))


def explain_module(path: str, error: str, torch: str) -> str:
    """Return the loader's words about a module of Python as a sentence.

    `torch` is the installed version.
    """
    name = path.rpartition("-packages/")[2]
    symbol = UNDEFINED_IN_TORCH.search(error)
    if missing := missing_library(error):
        return f"{name} cannot be loaded: it finds no {missing[0]}"
    if symbol:
        return f"{name} is built for another torch than {torch or 'the installed one'}, which has no {symbol[1]}"
    sentence = explain_refusal(error)
    return f"{name} cannot be loaded: {error.removeprefix(f'{path}: ')}" if sentence == error else sentence


def missing_library(error: str) -> list[str]:
    """Return the library that the loader's words miss, in a list; empty for another fault."""
    match = NOT_FOUND.match(error)
    return [match[1]] if match else []


def essential_missing(lacks: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return what modules of Python lack without which their package cannot work.

    Both are by path. Those are of CUDA, and others where no module of the package has all. What one module lacks alone
    may be for something that the image does not use, as what a library beside the modules does, which the package opens
    itself. So may what modules that differ in numbers lack each of its own, as those for several FFmpeg.
    """
    alternatives = defaultdict(set)
    for path, missing in lacks.items():
        alternatives[NUMBER.sub("", path)].add(tuple(missing))
    complete_packages = {_package(path) for path, missing in lacks.items() if not missing}
    return {
        path: [
            name
            for name in missing
            if IMPORTED.fullmatch(path)
            and (
                CUDA_LIBRARY.fullmatch(name)
                or (_package(path) not in complete_packages and len(alternatives[NUMBER.sub("", path)]) == 1)
            )
        ]
        for path, missing in lacks.items()
    }


def _package(path: str) -> str:
    """Return a module's package, by its folder or, at the top, its file."""
    before, _, after = path.partition("-packages/")
    return f"{before}/{after.split('/')[0]}" if after else path.rpartition("/")[0]


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
    """Return a path without what tells modules apart of which a package takes one."""
    return NUMBER.sub("", CUDA_NUMBER.sub(r"\1", path))


def closure(libraries: Libraries, path: str) -> Closure:
    """Return what `path` pulls in; nothing where that was not looked at."""
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
