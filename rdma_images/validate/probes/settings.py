"""Find what sets variables beside the image's environment, and the files that variables name and that are missing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rdma_images.validate.probes import libraries, loader, rootfs

VARIABLE_NAME = (
    r"(?:NCCL|FI|OFI_NCCL|RDMAV|IBV|GLOO|NVIDIA|CUDA_(?:VISIBLE|LAUNCH)|LD|NVSHMEM|TORCH_NCCL|OMPI_MCA|UCX)_\w+"
)
VARIABLE = re.compile(VARIABLE_NAME)
NCCL_FILES = ("/etc/nccl.conf",)  # NVIDIA/nccl, src/misc/param.cc; also $NCCL_CONF_FILE, else ~/.nccl.conf
# ofiwg/libfabric, src/var.c, below its build's sysconfdir; the EFA installer's prefix is /opt/amazon/efa.
PREFIXES = ("/etc", "/usr/etc", "/usr/local/etc", "/opt/amazon/efa/etc")
LIBFABRIC_FILES = tuple("%s/libfabric.conf" % prefix for prefix in PREFIXES)
SHELL_FILES = ("/etc/environment", "/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh/zshenv", "/etc/zshenv")
HOME_FILES = (".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshenv", ".zshrc")
PROFILES = "/etc/profile.d"
START_SCRIPTS = "/opt/nvidia/entrypoint.d"  # which the entry point of NVIDIA's images sources
ENTRY = "the entry point"
FILE_NAMING_VARIABLES = ("NCCL_CONF_FILE", "BASH_ENV", "ENV")  # variables that name such a file
PLUGIN_VARIABLES = (
    "NCCL_NET_PLUGIN",
    "NCCL_TUNER_PLUGIN",
    "NCCL_PROFILER_PLUGIN",
    "NCCL_ENV_PLUGIN",
    "NCCL_GIN_PLUGIN",
)
FILE_VARIABLES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE", "VLLM_NCCL_SO_PATH", *PLUGIN_VARIABLES)
PATH_LIST_VARIABLES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "FI_PROVIDER_PATH")
VALUE = r"""(?:"[^"]*"|'[^']*'|[^;&"'\s])*"""
STATEMENT_START = r"(?:^|[;&]|\b(?:export|then|do|else|setenv|declare\s+-x|typeset\s+-x)\s)\s*"
ASSIGNMENT = re.compile(STATEMENT_START + "(%s)[= ](%s)" % (VARIABLE_NAME, VALUE))
MAX_FILE_BYTES = 1 << 20  # bytes of a file
LOADER_FILE, LOADER_FOLDER = "/etc/ld.so.conf", "/etc/ld.so.conf.d"  # ldconfig(8); the first includes the second
ELF_MAGIC = "\x7fELF"
MAX_SETTINGS = 200
MAX_VALUE_LENGTH = 300  # characters of a value


def measure_settings(
    root: rootfs.Root, environment: Mapping[str, str], entry: Sequence[str], loaders: Any
) -> dict[str, Any]:
    """Return the variables that files set, and the missing files that variables name.

    `entry` are the words of its entry point and command: a script among them, or a shell's line, also sets variables.
    `loaders` answers as libraries.ImageLoader does.
    `without_path` is what the loader finds where LD_LIBRARY_PATH is not set: {name: file}; empty where it is not.
    """
    files = [*settings_files(root, environment), *(word for word in entry if word.startswith("/"))]
    texts = [(path, text) for path in files if (text := script_text(root, path)) is not None]
    texts += [(ENTRY, line) for flag, line in zip(entry, entry[1:]) if re.fullmatch(r"-[a-z]*c", flag)]
    assignments = find_assignments(texts, environment)
    listed = loader_folders(root)
    names = [name for name in loader_names(environment) if name != "libcuda.so.1"]
    return {
        "assigned": assignments,
        "absent": [
            *missing_files(environment, assignments, root.exists),
            *(folder for folder in listed if not root.exists(folder)),
        ],
        "loader_folders": listed,
        "without_path": loaders.without_path(names) if environment.get("LD_LIBRARY_PATH") else {},
    }


def settings_files(root: rootfs.Root, environment: Mapping[str, str]) -> list[str]:
    """Return the system's files that may set variables."""
    homes = ["/root", *(os.path.join("/home", name) for name in root.names("/home")[:20])]
    scripts = [
        os.path.join(folder, name)
        for folder in (PROFILES, START_SCRIPTS)
        for name in root.names(folder)
        if name.endswith(".sh")
    ]
    named_files = [environment[name] for name in FILE_NAMING_VARIABLES if environment.get(name, "").startswith("/")]
    paths = [*NCCL_FILES, *LIBFABRIC_FILES, *SHELL_FILES, *scripts, *named_files, loader.PRELOADED]
    of_home = (".nccl.conf", *HOME_FILES)
    paths += [os.path.join(home, name) for home in homes for name in of_home]
    return list(dict.fromkeys(paths))


def find_assignments(texts: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return every setting of a VARIABLE: its file, line, name, value and reader.

    NCCL takes a line of its file as it stands, so that a name can hold "export " or a space, and a value a carriage
    return. See _reader_kind for the readers.
    """
    assignments = []
    for path, text in texts:
        reader = _reader_kind(path, environment)
        parse_line = READERS.get(reader, _verbatim)
        for number, line in enumerate(text.split("\n"), 1):
            for name, value in parse_line(line):
                assignment = {
                    "file": path,
                    "line": number,
                    "name": name,
                    "value": value[:MAX_VALUE_LENGTH],
                    "reader": reader,
                }
                assignments.append(assignment)
    return assignments[:MAX_SETTINGS]


def missing_files(
    environment: Mapping[str, str], assignments: Iterable[Mapping[str, Any]], exists: Callable[[str], bool]
) -> list[str]:
    """Return the absolute paths that variables name and where nothing is."""
    named_values = [(name, environment.get(name, "")) for name in (*FILE_VARIABLES, *PATH_LIST_VARIABLES)]
    named_values += [
        (assignment["name"], assignment["value"])
        for assignment in assignments
        if assignment["name"] in (*FILE_VARIABLES, *PATH_LIST_VARIABLES)
    ]
    paths = [
        path
        for name, value in named_values
        for path in ([value] if name in FILE_VARIABLES else re.split(r"[:\s]+", value))
    ]
    return [path for path in dict.fromkeys(paths) if path.startswith("/") and "$" not in path and not exists(path)]


def loader_folders(root: rootfs.Root) -> dict[str, str]:
    """Return the folders that ldconfig's files name, with the file that names each."""
    files = [LOADER_FILE, *(os.path.join(LOADER_FOLDER, name) for name in root.names(LOADER_FOLDER))]
    lines = [
        (line.partition("#")[0].strip().rstrip("/"), file)
        for file in files
        if file == LOADER_FILE or file.endswith(".conf")
        for line in (root.text(file, MAX_FILE_BYTES) or "").splitlines()
    ]
    return {folder: file for folder, file in lines if folder.startswith("/")}


def loader_names(environment: Mapping[str, str]) -> list[str]:
    """Return the names whose answer LD_LIBRARY_PATH could change."""
    return [*libraries.LOADED_BY_NAME, *libraries.candidate_plugin_names([], environment)]


def _reader_kind(path: str, environment: Mapping[str, str]) -> str:
    """Return who reads a file: "nccl", "libfabric", "loader", "shell", or the "start script" of NVIDIA's images."""
    if path == environment.get("NCCL_CONF_FILE") or path.endswith("nccl.conf"):
        return "nccl"
    if path == loader.PRELOADED:
        return "loader"
    if path.startswith(START_SCRIPTS + "/"):
        return "start script"
    return "libfabric" if path.endswith("libfabric.conf") else "shell"


def _verbatim(line: str) -> Iterator[tuple[str, str]]:
    """Yield a line of nccl.conf or libfabric.conf; the name ends at the first "="."""
    name, separator, value = line.partition("=")
    if separator and not line.startswith("#") and VARIABLE.search(name):
        yield name, value


def _shell(line: str) -> Iterator[tuple[str, str]]:
    """Yield the variables that a line of a shell's file sets."""
    for match in ASSIGNMENT.finditer(line.strip()):
        yield match.group(1), re.sub("[\"']", "", match.group(2))


def _preloaded(line: str) -> Iterator[tuple[str, str]]:
    """Yield the libraries in a line of /etc/ld.so.preload, as LD_PRELOAD would name them."""
    for path in re.split(r"[:\s]+", line.partition("#")[0].strip()):
        if path:
            yield "LD_PRELOAD", path


READERS = {"shell": _shell, "start script": _shell, "loader": _preloaded}


def script_text(root: rootfs.Root, path: str) -> str | None:
    """Return the text of a file that is no ELF file; None where it is one or cannot be read."""
    text = root.text(path, MAX_FILE_BYTES)
    return None if text is None or text.startswith(ELF_MAGIC) else text
