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
# Open MPI's parameters: its prefix's etc, and ~/.openmpi; a parameter there is the variable OMPI_MCA_<name>.
MPI_PREFIXES = (
    "/etc",
    "/etc/openmpi",
    "/opt/amazon/openmpi/etc",
    "/opt/amazon/openmpi5/etc",
    "/opt/hpcx/ompi/etc",
    "/usr/local/etc",
)
MPI_FILES = tuple("%s/openmpi-mca-params.conf" % prefix for prefix in MPI_PREFIXES)
# The last is of DeepSpeed, whose launcher exports each line of it to all nodes: deepspeed/launcher/runner.py.
HOME_FILES = (".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshenv", ".zshrc", ".deepspeed_env")
PROFILES, LIMITS = "/etc/profile.d", "/etc/security/limits.d"
ACTIVATED = "etc/conda/activate.d"  # of an environment of conda: what its activation reads
PYTHON_FILES = re.compile(r"(?:site|user)customize\.py|[^/]+\.pth")  # Python's library site runs them at each start
ENTRY = "the entry point"
SETTINGS_PATHS = re.compile(  # of all files above; those that variables name are not among them
    r"/etc/(?:nccl\.conf|environment|profile|bash\.bashrc|bashrc|zshenv|zsh/zshenv|profile\.d/[^/]+\.sh)"
    r"|(?:/etc|/usr/etc|/usr/local/etc|/opt/amazon/efa/etc)/libfabric\.conf"
    r"|(?:/root|/home/[^/]+)/\.(?:nccl\.conf|bashrc|bash_profile|bash_login|profile|zshenv|zshrc|deepspeed_env)"
    r"|/etc/ld\.so\.(?:preload|conf|conf\.d/[^/]+)|.*/openmpi-mca-params\.conf|(?:/root|/home/[^/]+)/\.openmpi/mca-params\.conf"
    r"|/etc/security/limits(?:\.conf|\.d/[^/]+\.conf)"
    r"|.*/etc/conda/activate\.d/[^/]+\.sh"
    r"|.*/(?:(?:site|user)customize\.py|(?:site|dist)-packages/[^/]+\.pth)"
)
# What may start a job: scripts in the folders where images keep them, and the modules of SageMaker's launchers.
LAUNCHERS = re.compile(
    r"/(?:(?:opt|workspace|app|home|root|usr/local/bin|docker-entrypoint\.d)/(?:[^/]+/){0,2})?[^/]+\.(?:sh|bash|env)"
    r"|.*-packages/sagemaker_training/\w+\.py"
)
FILE_NAMING_VARIABLES = ("NCCL_CONF_FILE", "BASH_ENV", "ENV", "DS_ENV_FILE")  # variables that name such a file
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
# As a script passes one to a job: env NAME=value, mpirun -x NAME=value, "NAME=value" in a list of words.
PASSED_ASSIGNMENT = re.compile(
    r"""["'](%s)=([^"'${}%%]+)["']"""
    r"""|(?:^|\s)(%s)=("[^"$]*"|'[^']*'|[^\s"',;&$(){}%%\]]+)(?=[\s"',;&)\]]|$)""" % (VARIABLE_NAME, VARIABLE_NAME)
)
PRINTING_LINE = re.compile(r"\s*(?:#|echo\b|printf\b)")  # a script writes it, and does not run it
ULIMIT_LINE = re.compile(r"\bulimit\s+(?:-[HS]\s+)?(?:-[HS]?l[HS]?)\s+(\w+)")  # in a shell's file
MEMLOCK_LINE = re.compile(r"\s*(?:\*|[\w.-]+)\s+(?:soft|hard|-)\s+memlock\s+(-?\w+)")  # limits.conf(5), no groups
SET_IN_PYTHON = re.compile(
    r"""environ\s*\[\s*["'](%s)["']\s*\]\s*=(?!=)\s*["']([^"']*)["']""" % VARIABLE_NAME
    + r"""|(?:environ\s*\.\s*setdefault|putenv)\s*\(\s*["'](%s)["']\s*,\s*["']([^"']*)["']""" % VARIABLE_NAME
    + r"""|environ\s*\.\s*update\s*\(\W*?(%s)["']?\s*[:=]\s*["']([^"']*)["']""" % VARIABLE_NAME
)
MAX_FILE_BYTES = 1 << 20  # bytes of a file
LOADER_FILE, LOADER_FOLDER = "/etc/ld.so.conf", "/etc/ld.so.conf.d"  # ldconfig(8); the first includes the second
ELF_MAGIC = "\x7fELF"
MAX_SETTINGS = 200
MAX_SCRIPTS = 300
MAX_VALUE_LENGTH = 300  # characters of a value


def settings(
    root: rootfs.Root,
    environment: Mapping[str, str],
    entry: Sequence[str],
    loaders: Any,
    folders: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the variables that files set, and the missing files that variables name.

    `entry` are the words of its entry point and command: a script among them, or a shell's line, also sets variables.
    `loaders` answers as libraries.ImageLoader does, and `folders` are those that Python imports from.
    `without_path` is what the loader finds where LD_LIBRARY_PATH is not set: {name: file}; empty where it is not.
    """
    files = [*settings_files(root, environment, folders), *(word for word in entry if word.startswith("/"))]
    texts = [(path, text) for path in files if (text := script_text(root, path)) is not None]
    texts += [(ENTRY, line) for flag, line in zip(entry, entry[1:]) if re.fullmatch(r"-[a-z]*c", flag)]
    assignments = find_assignments(texts, environment)
    launcher_files = [path for path in launchers(root, folders) if path not in files]
    launcher_texts = [(path, text) for path in launcher_files if (text := script_text(root, path)) is not None]
    listed = loader_folders(root)
    names = [name for name in loader_names(environment) if name != "libcuda.so.1"]
    return {
        "assigned": assignments + find_assignments(launcher_texts, environment, "launcher"),
        "absent": [
            *missing_files(environment, assignments, root.exists),
            *(folder for folder in listed if not root.exists(folder)),
        ],
        "loader_folders": listed,
        "without_path": loaders.without_path(names) if environment.get("LD_LIBRARY_PATH") else {},
    }


def settings_files(root: rootfs.Root, environment: Mapping[str, str], folders: Sequence[str]) -> list[str]:
    """Return the system's files that may set variables.

    Args:
        folders: The folders that Python imports from.
    """
    homes = ["/root", *(os.path.join("/home", name) for name in root.names("/home")[:20])]
    profiles = [os.path.join(PROFILES, name) for name in root.names(PROFILES) if name.endswith(".sh")]
    named_files = [environment[name] for name in FILE_NAMING_VARIABLES if environment.get(name, "").startswith("/")]
    limits = [os.path.join(LIMITS, name) for name in root.names(LIMITS) if name.endswith(".conf")]
    paths = [*NCCL_FILES, *LIBFABRIC_FILES, *SHELL_FILES, *profiles, *conda_scripts(root, environment)]
    paths += [*python_files(root, folders), *named_files]
    paths += [loader.PRELOADED, *MPI_FILES, "/etc/security/limits.conf", *limits]
    of_home = (".nccl.conf", ".openmpi/mca-params.conf", *HOME_FILES)
    paths += [os.path.join(home, name) for home in homes for name in of_home]
    return list(dict.fromkeys(paths))


def conda_scripts(root: rootfs.Root, environment: Mapping[str, str]) -> list[str]:
    """Return what conda's activation reads, in each environment that is named or on the PATH."""
    programs = [path for path in environment.get("PATH", "").split(":") if os.path.basename(path) == "bin"]
    prefixes = [environment.get("CONDA_PREFIX", ""), *map(os.path.dirname, programs)]
    folders = dict.fromkeys(os.path.join(prefix, ACTIVATED) for prefix in prefixes if prefix)
    return [os.path.join(folder, name) for folder in folders for name in root.names(folder) if name.endswith(".sh")]


def python_files(root: rootfs.Root, folders: Sequence[str]) -> list[str]:
    """Return what a Python runs at each start, in its folders and those above."""
    library_folders = [*folders, *(os.path.dirname(folder) for folder in folders), *root.glob("/usr/lib/python3*")]
    return [
        os.path.join(folder, name)
        for folder in dict.fromkeys(library_folders)
        for name in root.names(folder)
        if PYTHON_FILES.fullmatch(name)
    ]


def launchers(root: rootfs.Root, folders: Sequence[str]) -> list[str]:
    """Return the paths in the image that LAUNCHERS matches, at most MAX_SCRIPTS."""
    starts = ("/opt", "/workspace", "/app", "/home", "/root", "/usr/local/bin", "/docker-entrypoint.d")
    below = [folder for start in starts for depth in range(3) for folder in root.glob(start + "/*" * depth)]
    below += [os.path.join(folder, "sagemaker_training") for folder in folders]
    paths = [os.path.join(folder, name) for folder in ("/", *below) for name in root.names(folder)]
    return [path for path in dict.fromkeys(paths) if LAUNCHERS.fullmatch(path)][:MAX_SCRIPTS]


def find_assignments(
    texts: Iterable[tuple[str, str]], environment: Mapping[str, str], forced_reader: str = ""
) -> list[dict[str, Any]]:
    """Return every setting of a VARIABLE: its file, line, name, value and reader.

    `reader` is a key of READERS, or "nccl" or "libfabric". NCCL takes a line of its file as it stands, so that a name
    can hold "export " or a space, and a value a carriage return. `forced_reader` is the reader of all
    texts; without it their paths decide.
    """
    assignments = []
    for path, text in texts:
        reader = forced_reader or _reader_kind(path, environment)
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
    if path == environment.get("NCCL_CONF_FILE") or path.endswith("nccl.conf"):
        return "nccl"
    if path.endswith((".py", ".pth")):
        return "python"
    if path == loader.PRELOADED:
        return "loader"
    if path.endswith("mca-params.conf"):
        return "mpi"
    if path.startswith("/etc/security/"):
        return "limits"
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
    for match in ULIMIT_LINE.finditer(line.partition("#")[0]):
        yield "ulimit -l", match.group(1)


def _passed_variables(line: str) -> Iterator[tuple[str, str]]:
    """Yield the variables that a script's line sets or passes to programs."""
    if not PRINTING_LINE.match(line):
        words = [
            match.group(1, 2) if match.group(1) else match.group(3, 4) for match in PASSED_ASSIGNMENT.finditer(line)
        ]
        variables = {name: value.strip("\"'") for name, value in words}
        variables.update({name: value for name, value in _shell(line) if "$" not in value})
        yield from {**variables, **dict(_python(line))}.items()


def _python(line: str) -> Iterator[tuple[str, str]]:
    """Yield the variables that a line of Python sets."""
    for match in () if line.lstrip().startswith("#") else SET_IN_PYTHON.finditer(line):
        name, value = (group for group in match.groups() if group is not None)
        yield name, value


def _preloaded(line: str) -> Iterator[tuple[str, str]]:
    """Yield the libraries in a line of /etc/ld.so.preload, as LD_PRELOAD would name them."""
    for path in re.split(r"[:\s]+", line.partition("#")[0].strip()):
        if path:
            yield "LD_PRELOAD", path


def _parameter(line: str) -> Iterator[tuple[str, str]]:
    """Yield a parameter of Open MPI as its variable; those given to all ranks."""
    name, separator, value = (part.strip() for part in line.partition("#")[0].partition("="))
    if separator and name == "mca_base_env_list":
        for variable in value.split(";"):
            yield from _verbatim(variable.strip())
    elif separator:
        yield "OMPI_MCA_" + name, value


def _memlock(line: str) -> Iterator[tuple[str, str]]:
    """Yield a line of limits.conf about locked memory."""
    match = MEMLOCK_LINE.match(line)
    if match:
        yield "memlock", match.group(1)


READERS = {
    "shell": _shell,
    "python": _python,
    "loader": _preloaded,
    "mpi": _parameter,
    "limits": _memlock,
    "launcher": _passed_variables,
}


def script_text(root: rootfs.Root, path: str) -> str | None:
    """Return the text of a file that is no ELF file; None where it is one or cannot be read."""
    text = root.text(path, MAX_FILE_BYTES)
    return None if text is None or text.startswith(ELF_MAGIC) else text
