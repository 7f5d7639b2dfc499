"""NCCL, its plugins, libfabric and the verbs libraries: what each is, needs, offers and looks for."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable
from typing import Any, Mapping

from rdma_images.validate.probes import conditions, elf, fatbin, loader, rootfs, tools, tree

NCCL = re.compile(r"libnccl\.so(\.\d+)*")
PLUGIN = re.compile(r"libnc(?:cl|com)-(?:net|tuner|ofi|env)[\w.-]*\.so(\.\d+)*|libnccl-net\.so")
LOOKED_FOR = re.compile(
    rb"nccl(?:Net|Tuner|Profiler|Gin|Rma)Plugin_v\d+(?=\0)"
    rb"|libnccl-(?:net|tuner)(?:\.so)?(?=\0)"
    rb"|NCCL version \d[\w.]*\+[\w.]+"
)
ABIS = ("ncclNetPlugin_v", "ncclTunerPlugin_v", "ncclGinPlugin_v", "ncclRmaPlugin_v")
EXPORTED = re.compile(rb"nccl(?:Net|Tuner|Gin|Rma)Plugin_v\d+(?=\0)")
PROGRAM = re.compile(r"\w+_perf")  # those of nccl-tests
FABRIC = re.compile(r"lib(?:fabric|efa|ibverbs)\.so(\.\d+)*")
# The suffix of its providers, the folder that it opens them in first, and the one with their announcements.
VERBS = re.compile(rb"(?:/[\w.+/-]{1,200}/lib%s)?-rdmav\d+\.so|/[\w.+/-]{1,200}/libibverbs\.d(?=\0)")
OFI_BANNER = re.compile(rb"aws-ofi-nccl (?:\d|git-)[\w.]*")  # in the first line that the plugin logs
# What a network plugin calls itself, by project: strings of their sources at the commits
# Mellanox/nccl-rdma-sharp-plugins 2f5ac02, uccl-project/uccl da914a2 and google/nccl-fastsocket b3ff1c6.
PROJECTS = {
    "nccl-rdma-sharp-plugins": re.compile(rb"NCCL RDMA Plugin|(?<=\0)IBext(?:_v\d+)?(?=\0)"),
    "uccl-efa": re.compile(rb"(?<=\0)EFA_Plugin(?=\0)"),
    "uccl-rdma": re.compile(rb"(?<=\0)RDMA_Plugin(?=\0)"),
    "uccl-afxdp": re.compile(rb"(?<=\0)AFXDP_Plugin(?=\0)"),
    "nccl-fastsocket": re.compile(rb"(?<=\0)FastSocket(?=\0)"),
}
# What src/platform-aws.c(pp), and no other file, logs first: in every plugin that was built with --enable-platform-aws.
OFI_ON_AWS = re.compile(rb"Configuring AWS-specific options")
# What a plugin opens by its name, after the message of each that does, or an aws-ofi-nccl after the name itself:
# src/nccl_ofi_cuda.c(pp), 1.5.0 to 1.22.0. Those of configure's --enable-cudart-dynamic do, and all before it had the
# switch; the others have neither.
OPENS = {"libcudart.so": re.compile(rb"Failed to find CUDA Runtime library")}
OFI_OPENS = {"libcudart.so": re.compile(rb"(?<=\0)libcudart\.so(?=\0)")}
# The same of a libfabric that was configured with --enable-cuda-dlopen, as AWS's is: src/hmem_cuda.c, 1.11 to 2.6.0.
FABRIC_OPENS = {"libcudart.so": re.compile(rb"Failed to dlopen libcudart\.so")}
SYSTEM_LIBRARIES = ("libfabric.so.1", "libefa.so.1", "libibverbs.so.1", "libcuda.so.1", "libmlx5.so.1")
# NCCL opens a profiler without being asked, and the plugin GDRCopy by this name: src/nccl_ofi_gdrcopy.cpp, from 1.18.0.
LOADED_BY_NAME = ("libnccl.so.2", "libnccl-profiler.so", "libgdrapi.so", *SYSTEM_LIBRARIES)
PROVIDER = re.compile(r"lib\w+-rdmav\d+\.so")  # of libibverbs
# What opens a network without NCCL: NIXL's backends, UCX's modules for RDMA, NVSHMEM's transports.
TRANSPORT = re.compile(
    r"lib(?:plugin_(?:LIBFABRIC|UCX(?:_MO)?)|uct_(?:ib|ib_\w+|rdmacm|cuda_gdrcopy)|tensorrt_llm_nixl_wrapper)(?:-[0-9a-f]{8})?"
    r"\.so(?:\.[\d.]+)?|nvshmem_transport_(?:libfabric|ucx)\.so(?:\.[\d.]+)?"
)
LIBFABRIC = re.compile(r"libfabric\.so(\.\d+)*")
# What fi_tostr() says of itself, ofiwg/libfabric src/fi_tostr.c: "2.4.0amzn1.0" in AWS's builds.
LIBFABRIC_VERSION = re.compile(rb"(?<=\0)\d+\.\d+\.\d+(?:amzn[\d.]+|rc\d+)?(?=\0)")
IBVERBS = re.compile(r"libibverbs\.so(\.[\d.]+)*")
TOOLS = ("fi_info", "ibv_devinfo")
NO_FILES = (*conditions.SPECIAL, "folder")
TORCH_CUDA = re.compile(r"libtorch_cuda(?:_cpp)?\.so")
# Torch 0.4 to 1.1 has its CUDA code in libcaffe2_gpu.so.
TORCH = (
    *("libtorch_cuda.so", "libtorch_cuda_cpp.so", "libtorch_python.so", "libc10_cuda.so", "libtorch_global_deps.so"),
    "libcaffe2_gpu.so",
)


def fabric_libraries(
    root: rootfs.Root,
    files: dict[str, dict[str, Any]],
    environment: Mapping[str, str],
    loaders: Any,
    folders: Iterable[str] = (),
) -> dict[str, Any]:
    """Return what the fabric's libraries are, need and offer, and how they load.

    Args:
        files: The libraries of the tree, by path; their conditions are noted in them.
        loaders: Answers as ImageLoader does.
        folders: Those that Python imports from, in its order.
    """
    note_conditions(root, files, loaders.machine)
    nccls = {path: _facts(root, nccl_facts, path, files) for path in real_files(files, NCCL)}
    nccls.update(nccl_in_torch(root, files))
    plugins = {path: _facts(root, plugin_facts, path, files) for path in real_files(files, PLUGIN)}
    resolved = resolve_names(root, files, environment, loaders, nccls)
    loadable = [facts["file"] for name, facts in resolved.items() if facts["file"] and name != "libcuda.so.1"]
    opening = {name: path for path, facts in plugins.items() for name in facts.get("opens", ())}
    resolved.update({name: loaders.resolve_name(name, path) for name, path in opening.items()})
    fabrics = real_files(files, LIBFABRIC)
    opens = {path: unresolved_opens(root, path, loaders) for path in fabrics}
    loadable += [*real_files(files, FABRIC), *nccls, *plugins, *real_files(files, PROVIDER), *transports(files)]
    loadable += tool_files(root, environment)
    loadable += [path for path in real_files(files, PROGRAM) if root.apply(linkage, path)]
    closures = {path: loaders.closure(path, checks_all_symbols(root, path)) for path in dict.fromkeys(loadable)}
    closures.update({path: loaders.closure(path, False) for path in torch_libraries(root, folders)})
    return {
        "nccl": nccls,
        "plugins": plugins,
        "gpu_code": {path: root.apply(gpu_code, path) for path in real_files(files, PROGRAM)},
        "resolved": resolved,
        "closures": closures,
        "verbs_looks_for": {path: root.apply(verbs_words, path) for path in real_files(files, IBVERBS)},
        "libfabric": {path: root.apply(libfabric_version, path) for path in fabrics},
        "opens": {path: names for path, names in opens.items() if names},
        "method": loaders.method,
    }


def resolve_names(
    root: rootfs.Root,
    files: dict[str, dict[str, Any]],
    environment: Mapping[str, str],
    loaders: Any,
    nccls: Mapping[str, dict[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Return the loader's answers for what a job opens by name.

    For plugins they are those that the first usable of `nccls` gets.
    """
    resolved = {name: loaders.resolve_name(name) for name in (*LOADED_BY_NAME, *loader.preloads(root, environment))}
    requiring_file = next((path for path, facts in nccls.items() if not facts["error"]), None)
    plugin_files = [os.path.basename(path) for path in sorted(files) if PLUGIN.fullmatch(os.path.basename(path))]
    for name in candidate_plugin_names(plugin_files, environment):
        resolved[name] = loaders.resolve_name(name, requiring_file)
    return resolved


def unresolved_opens(root: rootfs.Root, path: str, loaders: Any) -> list[str]:
    """Return what the libfabric at `path` opens by its name and the loader does not find."""
    return [name for name in root.apply(libfabric_opens, path) if not loaders.resolve_name(name, path)["file"]]


class ImageLoader:
    """The image's loader, which is not asked to open pipes or devices.

    After a question without an answer it is asked nothing more.
    """

    method = "the image's loader"
    machine = platform.machine()

    def __init__(self, files: dict[str, dict[str, Any]]) -> None:
        """Note the pipes and devices among `files`, by the names that matter."""
        self.traps = {os.path.basename(p): p for p, facts in files.items() if facts["condition"] in conditions.SPECIAL}
        self.waited = ""  # what it did not answer

    def resolve_name(self, name: str, requiring_file: str | None = None) -> dict[str, Any]:
        """Return as loader.resolve_name."""
        if os.path.basename(name) in self.traps:
            path = self.traps[os.path.basename(name)]
            return {"path": path, "file": path, "error": "%s is no file: opening it may never end" % path}
        if self.waited:
            return {"path": "", "file": "", "error": "not asked: %s" % self.waited}
        answer = loader.resolve_name(name, requiring_file)
        self.waited = "%s: %s" % (name, loader.LATE_ANSWER) if answer["error"] == loader.LATE_ANSWER else ""
        return answer

    def closure(self, path: str, bound: bool = True) -> dict[str, Any]:
        """Return as loader.closure."""
        why = self.waited or next(("%s is no file" % trap for trap in self.traps.values()), "")
        if why:
            return {"libraries": {}, "missing": [], "faults": [], "error": "not asked: %s" % why}
        answer = loader.closure(path, bound)
        self.waited = next((fault for fault in answer["faults"] if fault.endswith(loader.LATE_ANSWER)), "")
        return answer

    def without_path(self, names: Iterable[str]) -> dict[str, str]:
        """Return the files that `names` lead to without LD_LIBRARY_PATH.

        This process then goes without it.
        """
        os.environ.pop("LD_LIBRARY_PATH", None)
        return {name: self.resolve_name(name)["file"] for name in names}


def _facts(
    root: rootfs.Root, read: Callable[[str], dict[str, Any]], path: str, files: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Return what `read` says of a library, or why the file is not one."""
    condition = files[path]["condition"]
    facts: dict[str, Any] = {"error": condition} if condition else root.apply(read, path)
    return facts


def note_conditions(root: rootfs.Root, files: dict[str, dict[str, Any]], machine: str) -> None:
    """Note in each row of `files` why it can be no library of this machine, if so."""
    for path, facts in files.items():
        if ".so" in os.path.basename(path) and not facts["condition"]:
            facts["condition"] = conditions.path_condition(root, path, machine)


def gpu_code(path: str) -> list[str]:
    """Return the architectures that a program holds code for; none for a script."""
    try:
        return fatbin.architectures(path)
    except (OSError, elf.NotElf):
        return []


def real_files(files: dict[str, dict[str, Any]], name: re.Pattern[str]) -> list[str]:
    """Return the regular files (not links) among `files` whose name matches."""
    return sorted(p for p, facts in files.items() if is_file(facts) and name.fullmatch(os.path.basename(p)))


def transports(files: dict[str, dict[str, Any]]) -> list[str]:
    """Return what opens a network without NCCL, and Python modules that call NCCL."""
    return real_files(files, TRANSPORT) + real_paths(files, tree.EXTENSION)


def real_paths(files: dict[str, dict[str, Any]], path: re.Pattern[str]) -> list[str]:
    """Return the regular files (not links) among `files` whose whole path matches."""
    return sorted(p for p, facts in files.items() if path.fullmatch(p) and is_file(facts))


def linkage(path: str) -> dict[str, Any]:
    """Return the ELF headers of a library, as elf.library does; empty where it cannot be read."""
    try:
        return elf.library(path)
    except (OSError, elf.NotElf):
        return {}


def needed_libraries(root: rootfs.Root, path: str) -> list[str]:
    """Return what a library names as needed; nothing where it cannot be read."""
    return list(root.apply(linkage, path).get("needed", ()))


def is_file(facts: dict[str, Any]) -> bool:
    """Return whether the facts of the tree are about a regular file."""
    return not facts["target"] and facts.get("condition") not in NO_FILES


def checks_all_symbols(root: rootfs.Root, path: str) -> bool:
    """Return whether the loader looks up all symbols of `path`.

    It does not of torch's users: that takes long.
    """
    return not any(name.startswith("libtorch") for name in (os.path.basename(path), *needed_libraries(root, path)))


def nccl_in_torch(root: rootfs.Root, files: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the libtorch_cuda that has NCCL in itself, {path: facts}.

    Those of conda and of torch 1 have.
    """
    paths = [path for path in real_files(files, TORCH_CUDA) if "libnccl.so.2" not in needed_libraries(root, path)]
    by_path = {path: _facts(root, nccl_facts, path, files) for path in paths}
    return {path: facts for path, facts in by_path.items() if facts.get("banner")}


def candidate_plugin_names(present: list[str], environment: Mapping[str, str]) -> list[str]:
    """Return the file names to ask the loader for.

    NCCL's own, those its environment variables ask for, those `present`.
    """
    names = ["libnccl-net.so"]
    for variable, template in (("NCCL_NET_PLUGIN", "libnccl-net-%s.so"), ("NCCL_TUNER_PLUGIN", "libnccl-tuner-%s.so")):
        for word in filter(None, environment.get(variable, "").split(",")):
            names += [word, template % word]
    return list(dict.fromkeys(names + present))


def nccl_facts(path: str) -> dict[str, Any]:
    """Return the version, plugin symbols (ABI numbers by kind) and files of a libnccl."""
    try:
        strings = elf.find_strings(path, LOOKED_FOR)
        headers = elf.library(path)
    except (OSError, elf.NotElf) as error:
        return {"error": str(error)}
    banners = [w.split()[-1] for w in strings if w.startswith("NCCL version ")]
    # Newer ones keep the name without its ending, and put "-<word>" and ".so" behind it.
    names = {w if w.endswith(".so") else w + ".so" for w in strings if w.startswith("libnccl-")}
    return {
        "error": "",
        "banner": banners[0] if banners else "",
        "looks_for": {kind: elf.numbers(strings, kind) for kind in ABIS if elf.numbers(strings, kind)},
        "file_names": sorted(names),
        "runpath": headers["rpath"] + headers["runpath"],
    }


def plugin_facts(path: str) -> dict[str, Any]:
    """Return what the plugin is, exports (ABI numbers by kind) and needs.

    `version` is "" where it is no release of aws-ofi-nccl; `aws_platform` is None where it is no aws-ofi-nccl;
    `project` is "" where its strings do not say whose it is.
    """
    try:
        headers = elf.library(path)
        names = elf.exported_symbols(path, EXPORTED)
        banners = [banner.split()[-1] for banner in elf.find_strings(path, OFI_BANNER)]
        on_aws = elf.find_strings(path, OFI_ON_AWS)
        patterns = [*OPENS.items(), *(OFI_OPENS.items() if banners else ())]
        opens = list(dict.fromkeys(name for name, pattern in patterns if elf.find_strings(path, pattern)))
        projects = (name for name, pattern in PROJECTS.items() if elf.find_strings(path, pattern))
        project = "aws-ofi-nccl" if banners else next(projects, "")
    except (OSError, elf.NotElf) as error:
        return {"error": str(error)}
    return {
        "error": "",
        "project": project,
        "version": next((banner for banner in banners if banner[0].isdigit()), ""),
        "aws_platform": bool(on_aws) if banners else None,
        "exports": {kind: elf.numbers(names, kind) for kind in ABIS if elf.numbers(names, kind)},
        "needed": headers["needed"],
        "opens": opens,
    }


def verbs_words(path: str) -> list[str]:
    """Return what the libibverbs at `path` looks for.

    "-rdmav34.so", "<folder>/lib%s-rdmav34.so", "/etc/libibverbs.d".
    """
    try:
        return elf.find_strings(path, VERBS)
    except (OSError, elf.NotElf):
        return []


def libfabric_version(path: str) -> str:
    """Return the version that a libfabric says of itself; "" for none, or several."""
    try:
        strings = elf.find_strings(path, LIBFABRIC_VERSION)
    except (OSError, elf.NotElf):
        return ""
    return strings[0] if len(strings) == 1 else ""


def libfabric_opens(path: str) -> list[str]:
    """Return the libraries that the libfabric at `path` opens by their names."""
    try:
        return [name for name, pattern in FABRIC_OPENS.items() if elf.find_strings(path, pattern)]
    except (OSError, elf.NotElf):
        return []


def torch_libraries(root: rootfs.Root, folders: Iterable[str]) -> list[str]:
    """Return the libraries of the torch that Python imports from these folders."""
    for folder in folders:
        paths = ["%s/torch/lib/%s" % (folder, name) for name in TORCH]
        present = [root.real(path) for path in paths if root.is_file(path)]
        if present:
            return present
    return []


def tool_files(root: rootfs.Root, environment: Mapping[str, str]) -> list[str]:
    """Return the programs of the fabric on PATH or in usual places.

    Scripts are left out.
    """
    folders = [*environment.get("PATH", "").split(":"), *tools.PROGRAM_FOLDERS.split(":")]
    paths = [next((p for p in ("%s/%s" % (f, tool) for f in folders) if root.is_file(p)), "") for tool in TOOLS]
    return [path for path in paths if path and root.apply(linkage, path)]
