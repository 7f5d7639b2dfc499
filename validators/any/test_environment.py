"""Variables of any image: names that are read, and files and folders that are there."""

import re
from collections.abc import Collection
from pathlib import PurePosixPath

import pytest

from rdma_images.chain import compute
from rdma_images.chain.nccl_environment import started_environment
from rdma_images.chain.verbs_links import IB_DISABLE, sharp_disabling_variable, sharp_plugin
from rdma_images.inspection.inspection import Inspection, base_name, missing_in, resolve_links, same_nccl
from rdma_images.inspection.measurements import Libraries, Settings
from rdma_images.validate.probes.settings import FILE_VARIABLES
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.variables import environments, variable_facts
from validators.support.wording import shorten_names

NAME_SOURCE = "facts/variables.yaml, read from the sources of NCCL, aws-ofi-nccl, libfabric and rdma-core"
FILE_SOURCE = "NVIDIA/nccl, src/graph/xml.cc and src/graph/search.cc: what NCCL does where it cannot open such a file"
ENDING_EFFECTS = {"NCCL_GRAPH_FILE": "NCCL ends", "VLLM_NCCL_SO_PATH": "vLLM ends"}
MISSING_EFFECTS = {**ENDING_EFFECTS, "LD_PRELOAD": "every program complains, and nothing is preloaded"}
SEARCH_SOURCE = "ld.so(8): LD_LIBRARY_PATH and LD_PRELOAD come before what the image's libraries ask for"
FABRIC_LIBRARY = re.compile(r"lib(?:nccl|fabric|ibverbs|efa|erdma|mlx|cuda|cudart)[-.\w]*")
STUB_FOLDER = re.compile(r"/stubs/?$")
STUB_FIX = "take the folder out of LD_LIBRARY_PATH: it is for linking alone, where LIBRARY_PATH names it"
FOLDER_FIX = "take the folders out of LD_LIBRARY_PATH, or name those that hold the libraries"
QUOTED_VALUE = re.compile(r"[\"'].*|.*[\"']")
PRELOAD_FIX = "preload the build that is for the libraries of this image, or install what brings the others"
MOUNTED_FOLDERS = ("/proc/", "/sys/", "/dev/", "/run/", "/var/run/")
SCRATCH_FOLDERS = ("/tmp/", "/var/tmp/")  # where what sets a variable at a start may also write the file
RUNTIME_FOLDERS = ("/usr/local/nvidia/lib", "/usr/local/cuda/compat/lib", "/usr/local/cuda/compat", "/usr/lib/wsl/")


@pytest.mark.validator("environment.misspelt", source=NAME_SOURCE, severity="warning")
def test_misspelt(inspection: Inspection, require: Requirement) -> None:
    """No variable has a name that nothing reads, and that is nearly one that is read, or quotes in its value."""
    variable_table, started_with = variable_facts(), started_environment(inspection)
    values = {name: value for environment in environments(inspection).values() for name, value in environment.items()}
    meant = {name: near for name in values if (near := variable_table.closest_name(name))}
    quoted = [name for name, value in values.items() if name in variable_table.names and QUOTED_VALUE.fullmatch(value)]
    lines = [f"{name} is read by nothing: {near} is" for name, near in meant.items()]
    lines += [f"{name}={values[name]}: the quotes are a part of the value" for name in quoted]
    fixes = [f"write {near} in place of {name}, or leave it out" for name, near in meant.items()]
    fixes += [f"set {name} without quotes: a file of variables is not read by a shell" for name in quoted]
    plugin, switch = sharp_plugin(inspection), sharp_disabling_variable(started_with)
    if plugin and started_with.get(IB_DISABLE, "0") not in ("", "0"):
        lines.append(f"{IB_DISABLE} does nothing: NCCL takes {plugin}, which reads {switch}")
        fixes.append(f"set {switch}=1, too, or leave {IB_DISABLE} out")
    require(
        not lines,
        expected="names that the libraries read, and values without quotes",
        actual="; ".join(lines) or "no other name, and no quotes",
        fix="; ".join(fixes),
    )


@pytest.mark.validator("environment.loader", source=SEARCH_SOURCE, severity="warning")
def test_loader(inspection: Inspection, libraries: Libraries, settings: Settings, require: Requirement) -> None:
    """LD_LIBRARY_PATH and LD_PRELOAD put no other library in the place of the fabric's."""
    replaced = {}
    for name, without in settings.without_path.items():
        answer = libraries.resolved.get(name)
        if not without or not answer or answer.file in ("", without) or same_nccl(libraries, answer.file, without):
            continue
        if not (_is_ofi_plugin(libraries, answer.file) and _is_ofi_plugin(libraries, without)):
            replaced[name] = answer, without
    preloaded_files = [
        path for path in _preloaded(inspection) if _replaces_fabric_library(inspection, settings, path, set(replaced))
    ]
    by_file = {
        setting.value: setting.file
        for setting in settings.assigned
        if setting.reader == "loader" and _replaces_fabric_library(inspection, settings, setting.value, set(replaced))
    }
    tree, paths_without = inspection.measured.tree, settings.without_path.items()
    needed = any(
        (a := libraries.resolved.get(name)) and a.file and a.file != without for name, without in paths_without
    )
    secure = tree.files.set_user_id if tree and needed else []
    lines = [
        f"LD_LIBRARY_PATH puts {answer.file} before {without}: every process takes it for {name}"
        for name, (answer, without) in replaced.items()
    ]
    preloads = [f"LD_PRELOAD={path}" for path in preloaded_files] + [
        f"{file} names {path}" for path, file in by_file.items()
    ]
    lines += [f"{line}: every program gets it, whatever the loader would find" for line in preloads]
    lines += [
        f"{path} has a set-user-ID bit, and misses the fabric's libraries: the loader gives it no LD_LIBRARY_PATH"
        for path in secure
    ]
    folders = dict.fromkeys(str(PurePosixPath(answer.path).parent) for answer, _ in replaced.values())
    fixes = [f"take {', '.join(folders)} out of LD_LIBRARY_PATH, or put it last"] if folders else []
    fixes += [f"take {', '.join(preloaded_files)} out of LD_PRELOAD"] if preloaded_files else []
    fixes += [f"take {', '.join(by_file)} out of {', '.join(set(by_file.values()))}"] if by_file else []
    fixes += (
        [f"chmod ug-s {' '.join(secure)}, or name the folders in /etc/ld.so.conf.d in place of it"] if secure else []
    )
    require(
        not lines,
        expected="the libraries that the loader finds without LD_LIBRARY_PATH, and none of the fabric's in LD_PRELOAD",
        actual="; ".join(lines) or "the same libraries as without them",
        fix="; ".join(fixes),
    )


def _replaces_fabric_library(inspection: Inspection, settings: Settings, path: str, replaced: Collection[str]) -> bool:
    """Return whether a preloaded library takes the place of one of the fabric's.

    environment.files tells of one that is not there.
    """
    is_fabrics = path not in settings.absent and bool(FABRIC_LIBRARY.match(base_name(path)))
    return is_fabrics and not _is_resolved_anyway(inspection, path, replaced)


def _is_ofi_plugin(libraries: Libraries, path: str) -> bool:
    """Return whether the file is an aws-ofi-nccl.

    One may take the place of another, and plugin.newest tells an older one.
    """
    return path in libraries.plugins and libraries.plugins[path].project == "aws-ofi-nccl"


@pytest.mark.validator("environment.files", source=FILE_SOURCE)
def test_files(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """The files that variables name are in the image, and what the preloaded ones need."""
    missing = [path for path in settings.absent if not path.startswith(MOUNTED_FOLDERS)]
    unwritten = [path for path in missing if not path.startswith(SCRATCH_FOLDERS)]
    assignments = [
        (f"{origin}: " if origin else "", name, values.get(name, ""), unwritten if origin else missing)
        for origin, values in environments(inspection).items()
        for name in (*FILE_VARIABLES, "LD_PRELOAD")
    ]
    assignments += [(f"{item.file}:{item.line}: ", item.name, item.value, unwritten) for item in settings.assigned]
    faults = [
        (name, f"{origin}{name}={path} is not there: {MISSING_EFFECTS.get(name, 'NCCL goes on without it')}")
        for origin, name, value, paths in assignments
        if name in (*FILE_VARIABLES, "LD_PRELOAD")
        for path in paths
        if path in re.split(r"[:\s]+", value)
    ]
    faults.sort(key=lambda fault: fault[0] not in ENDING_EFFECTS)
    fix = "remove the variable, or put the file into the image: a job that mounts the file can set its variable, too"
    lacking = _preloaded_in_vain(inspection, settings)
    ends = bool(lacking) or any(name in ENDING_EFFECTS for name, _ in faults)
    require(
        not faults and not lacking,
        expected="every file that a variable names, and every library that a preloaded one needs",
        actual="; ".join([*(line for _, line in faults), *lacking]) or "no variable names a file that is not there",
        fix="; ".join([*([fix] if faults else []), *([PRELOAD_FIX] if lacking else [])]),
        severity=None if ends else "warning",
    )


def _preloaded_in_vain(inspection: Inspection, settings: Settings) -> list[str]:
    """Return what preloaded libraries need and nothing answers to: no program starts then."""
    origins = {word: f"LD_PRELOAD={word}" for word in _preloaded(inspection)}
    origins |= {
        setting.value: f"{setting.file} names {setting.value}"
        for setting in settings.assigned
        if setting.reader == "loader"
    }
    tree = inspection.measured.tree
    lines = []
    for word, origin in origins.items():
        answer = tree.libraries.resolved.get(word) if tree else None
        if tree and answer and (missing := missing_in(tree.libraries, answer.file)):
            lines.append(f"{origin} needs {', '.join(missing)}, not there: no program starts")
    return lines


@pytest.mark.validator("environment.path", source=SEARCH_SOURCE, severity="warning")
def test_path(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """LD_LIBRARY_PATH and ldconfig's files name folders that are there, and no stubs."""
    entries = ":".join(
        environment.get("LD_LIBRARY_PATH", "") for environment in environments(inspection).values()
    ).split(":")
    folders = dict.fromkeys(folder for folder in entries if folder in settings.absent)
    missing = [folder for folder in folders if not folder.startswith((*MOUNTED_FOLDERS, *RUNTIME_FOLDERS))]
    in_vain = f"LD_LIBRARY_PATH names {shorten_names(missing)}, not there: what was to be in it is not found"
    folders_fault = {in_vain: f"{FOLDER_FIX}: {', '.join(missing)}"} if missing else {}
    unread = [folder for folder in settings.loader_folders if folder in settings.absent and not _is_usual(folder)]
    for folder in unread:
        in_vain_too = f"{settings.loader_folders[folder]} names {folder}, not there: what was to be in it is not found"
        folders_fault[in_vain_too] = f"name the folder that has the libraries in {settings.loader_folders[folder]}"
    advice = {*folders_fault} if folders_fault and not _misses_fabric(inspection) else set()
    faults = {} if advice else {**folders_fault}
    stubs = [
        folder for folder in dict.fromkeys(entries) if STUB_FOLDER.search(folder) and folder not in settings.absent
    ]
    if stubs:
        faults[f"LD_LIBRARY_PATH has {stubs[0]}: what opens libcuda.so gets a stub, and CUDA does not start"] = STUB_FIX
    faults |= folders_fault  # last where it breaks nothing
    require(
        not faults,
        expected="folders that are there, and none of them of stubs",
        actual="; ".join(faults) or "all are there",
        fix="; ".join(faults.values()),
        severity="note" if faults and faults.keys() <= advice else None,
    )


def _is_usual(folder: str) -> bool:
    """Return whether images name this folder for ldconfig without having it."""
    return folder.startswith((*MOUNTED_FOLDERS, *RUNTIME_FOLDERS, "/usr/local/lib", "/usr/lib", "/lib", "/usr/libx32"))


def _misses_fabric(inspection: Inspection) -> bool:
    """Return whether NCCL does not reach the image's fabric.

    What it lacks may be in a folder that is not there.
    """
    fabric = inspection.expected.fabric
    chain = compute(inspection, fabric) if fabric else None
    return chain is not None and chain.outcome in ("tcp", "end")


def _preloaded(inspection: Inspection) -> list[str]:
    return re.split(r"[:\s]+", started_environment(inspection).get("LD_PRELOAD", ""))


def _is_resolved_anyway(inspection: Inspection, path: str, replaced: Collection[str]) -> bool:
    """Return whether LD_LIBRARY_PATH leads to this file by a name not in `replaced`.

    What the loader answered does not show it: where it is real, it answers with what was preloaded.
    """
    tree = inspection.measured.tree
    folders = started_environment(inspection).get("LD_LIBRARY_PATH", "").split(":")
    if not tree:
        return False
    file, library_files = resolve_links(tree.files, path), tree.files.libraries
    resolved_names = [
        name for name, answer in tree.libraries.resolved.items() if answer.file == file and name not in replaced
    ]
    first_paths = [
        next((p for f in folders if (p := f"{f.rstrip('/')}/{name}") in library_files), "") for name in resolved_names
    ]
    return any(resolve_links(tree.files, path_) == file for path_ in first_paths if path_)
