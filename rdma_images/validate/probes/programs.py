"""The programs that an image starts, those that compile at run time, and whether the kernel can start them."""

from __future__ import annotations

import posixpath
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rdma_images.validate.probes import elf, pythons, rootfs

COMPILERS = ("cc", "gcc", "clang", "c++", "g++", "clang++", "nvcc", "ninja")
# Where a compiler may lie that something other than PATH leads to, as an environment that is activated.
OTHER_FOLDERS = ("/opt/*/bin", "/opt/*/envs/*/bin", "/root/*conda*/bin", "/root/*conda*/envs/*/bin")
CONDA_COMPILER = re.compile(r"[\w-]+-conda[\w-]*-(?:cc|gcc|c\+\+|g\+\+)")  # which the activation of its package names
HEADERS = ("cuda_runtime.h", "curand_kernel.h", "nvrtc.h", "cublas_v2.h")  # of the CUDA toolkit
C_HEADERS = ("/usr/include/stdlib.h", "/usr/include/*/stdlib.h")
NVIDIAS_LAYOUT = re.compile(r"/usr/local/cuda[^/]*|.*-packages/nvidia/(?:cu13|cuda_nvcc)")
TOOLKIT = "/usr/local/cuda"  # where pytorch/pytorch, torch/utils/cpp_extension.py, looks last
STARTED_NVCC = re.compile(r"(?:^|[\s=\"'])(/[\w./+-]+/bin/nvcc)(?=[\s\"']|$)", re.MULTILINE)
MAX_WRAPPER = 4096  # bytes of a script that starts nvcc
NVCC_OF_A_WHEEL = ("nvidia/cu13/bin/nvcc", "nvidia/cuda_nvcc/bin/nvcc")  # below a folder of packages
INIT_PROGRAMS = ("tini", "tini-static", "dumb-init", "catatonit", "docker-init")
SHELLS = ("sh", "bash", "dash", "ash", "zsh")
PASSES_ON = re.compile(r'^\s*(?:exec\s+)?(?:\w+\s+)?"\$@"', re.MULTILINE)
LAST_EXEC = re.compile(r"^exec\s+(/[\w./+-]+)(?=\s|$)", re.MULTILINE)
# Programs that start a job, on a line without a condition before it.
STARTS_A_JOB = re.compile(
    r"(?:exec\s+)?(python3?|torchrun|mpirun|mpiexec|deepspeed|accelerate|ray|vllm|horovodrun|sshd)(?=\s|$)"
)
MOVES_PATH = re.compile(
    r"PATH=|^\s*(?:\.|source|module|eval)\s|\bactivate\b|\b(?:if|case|function|alias|chroot)\b|\(\)"
)
PLAIN_WORD = re.compile(r"[\w./+-]+")
BUILT_IN = re.compile(
    r"[.:]|alias|bg|cd|command|echo|eval|exec|exit|export|false|for|function|if|pwd|read|set|shift|source|test|time|trap"
    r"|true|type|ulimit|umask|unset|until|wait|while"
)
SYSTEM_FOLDERS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
PYTHON = re.compile(r".*/(?:python|pypy)[\w.]*")
MAX_FIRST_LINE_BYTES = 256  # bytes: Linux reads as many of a script's first line (BINPRM_BUF_SIZE)
MAX_SCRIPT = 1 << 20  # bytes of a script
MAX_SCRIPTS = 3000  # files of the folders on PATH
MAX_NAMES = 40
# Where Open MPI has its components below its prefix; Debian's and RHEL's lie elsewhere.
MPI_FOLDERS = ("%s/lib/openmpi", "%s/lib64/openmpi", "%s/lib/*/openmpi/lib/openmpi*", "%s/lib64/openmpi/lib/openmpi")
MPI_FILES = ("%s/lib/libmpi.so.*", "%s/lib64/libmpi.so.*", "%s/lib/*/libmpi.so.*", "%s/lib64/openmpi/lib/libmpi.so.*")
MPI_LIBRARY = re.compile(r"lib(?:mpi|open-pal)\.so\.[\d.]+")
BUILT_IN_COMPONENT = re.compile(rb"mca_(?:pml|mtl|btl)_\w+_component(?=\0)")
MPI_COMPONENT = re.compile(r"mca_(pml|mtl|btl)_(\w+)\.so")
ABSENT, FOLDER, NO_RIGHT, NO_INTERPRETER = "absent", "folder", "not executable", "no interpreter"
CARRIAGE_RETURN, NO_FORMAT = "carriage return", "no format"


def programs(
    root: rootfs.Root, environment: Mapping[str, str], entry: Sequence[str], workdir: str, folders: Sequence[str]
) -> dict[str, Any]:
    """Return the programs that an entry point starts, compilers and their headers.

    `entry` are the words of its entry point and command, which begin in `workdir`; "" where that is not known.
    `folders` are those that Python imports from.
    """
    path = environment.get("PATH", "")
    home = cuda_home(root, environment)
    return {
        "started": list(started(root, path, entry, workdir)),
        "compilers": {name: file for name in COMPILERS if (file := which(root, path, name))},
        "elsewhere": elsewhere(root, folders),
        "cuda_home": home,
        "nvcc": home + "/bin/nvcc" if home and root.is_file(home + "/bin/nvcc") else "",
        "cicc": has_device_compiler(root, home),
        "toolkit": started_toolkit(root, home),
        "headers": [name for name in HEADERS if home and root.exists("%s/include/%s" % (home, name))]
        + (["stdlib.h"] if any(map(root.glob, C_HEADERS)) else []),
        "python_headers": python_headers(root, path),
        "unstartable": unstartable(root, path),
        "mpi": mpi_components(root, environment),
    }


def which(root: rootfs.Root, path: str, name: str) -> str:
    """Return the program that PATH leads to; "" for none."""
    for folder in path.split(":"):
        program = "%s/%s" % (folder.rstrip("/"), name)
        entry = root.behind(program) if folder.startswith("/") else None
        if entry and stat.S_ISREG(entry.mode) and entry.mode & 0o111:
            return program
    return ""


def cuda_home(root: rootfs.Root, environment: Mapping[str, str]) -> str:
    """Return the CUDA toolkit as torch.utils.cpp_extension finds it; "" for none."""
    variable = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    nvcc = which(root, environment.get("PATH", ""), "nvcc")
    if variable or nvcc:
        return (variable or posixpath.dirname(posixpath.dirname(nvcc))).rstrip("/")
    return TOOLKIT if root.exists(TOOLKIT) else ""


def started_toolkit(root: rootfs.Root, home: str) -> str:
    """Return another toolkit whose nvcc is started by that below `home`; "" for none.

    The one is a link or a script. Only one with CUDA's headers counts.
    """
    nvcc = home + "/bin/nvcc"
    match = STARTED_NVCC.search(root.text(nvcc, MAX_WRAPPER) or "") if home else None
    real = match.group(1) if match else root.real(nvcc) if home else ""
    toolkit = posixpath.dirname(posixpath.dirname(real))
    has_headers = root.exists("%s/include/%s" % (toolkit, HEADERS[0]))
    return toolkit if has_headers and root.real(toolkit) != root.real(home) else ""


def has_device_compiler(root: rootfs.Root, home: str) -> bool:
    """Return whether a toolkit has the part of nvcc that compiles for GPUs.

    True of one of another layout. NVIDIA's bin/nvcc.profile names it: CICC_PATH = $(TOP)/nvvm/bin. CUDA 13 has it in a
    package of its own.
    """
    return not NVIDIAS_LAYOUT.fullmatch(home) or root.is_file(home + "/nvvm/bin/cicc")


def elsewhere(root: rootfs.Root, folders: Sequence[str]) -> list[str]:
    """Return the compilers that are in folders which something other than PATH may lead to."""
    paths = [folder + "/" + name for folder in folders for name in NVCC_OF_A_WHEEL]
    for folder in dict.fromkeys(folder for pattern in OTHER_FOLDERS for folder in root.glob(pattern)):
        names = root.names(folder)
        paths += ["%s/%s" % (folder, name) for name in names if name in COMPILERS or CONDA_COMPILER.fullmatch(name)]
    return [path for path in dict.fromkeys(paths) if root.is_file(path)][:MAX_NAMES]


def python_headers(root: rootfs.Root, path: str) -> dict[str, bool]:
    """Return whether Python.h is in the folder that each Python on PATH names, by that folder.

    That is what sysconfig says, and Triton and torch give to the compiler. Without a version in the name of the program
    the folder is not known.
    """
    headers = {}
    for python in pythons.on_path(path, root):
        for name in python["names"]:
            real = root.real("%s/%s" % (python["path"], name))
            version = pythons.PROGRAM.fullmatch(posixpath.basename(real))
            if version:
                prefix = posixpath.dirname(posixpath.dirname(real))
                folder = "%s/include/python%s" % (prefix, version.group(1))
                headers[folder] = root.exists(folder + "/Python.h")
    return headers


def start_fault(root: rootfs.Root, path: str, program: str) -> tuple[str, str]:
    """Return why the kernel does not start `program`, and the interpreter it names.

    The program is an absolute path. The reason is "" for what it starts, and where that is not known. `path` is PATH.
    """
    entry = root.behind(program)
    if not entry:
        return ABSENT, ""
    if stat.S_ISDIR(entry.mode):
        return FOLDER, ""
    if not stat.S_ISREG(entry.mode):
        return "", ""
    if not entry.mode & 0o111:
        return NO_RIGHT, ""
    head = root.start(program, MAX_FIRST_LINE_BYTES) or b""
    if not head.startswith(b"#!"):
        text = bool(head) and not head.startswith(b"\x7fELF") and all(byte > 31 or byte in b"\t\n\r" for byte in head)
        return NO_FORMAT if text else "", ""
    line, newline, _ = head[2:].partition(b"\n")
    words = line.decode("utf-8", "replace").split()
    if not newline or not words:
        return "", ""
    if line.endswith(b"\r"):
        return CARRIAGE_RETURN, words[0]
    if words[0].startswith("/") and not root.exists(words[0]):
        return NO_INTERPRETER, words[0]
    called = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if posixpath.basename(words[0]) == "env" and called and "/" not in called[0] and not which(root, path, called[0]):
        return NO_INTERPRETER, called[0]
    return "", words[0]


def started(root: rootfs.Root, path: str, entry: Sequence[str], workdir: str) -> Iterator[dict[str, str]]:
    """Yield what an entry point and command start: program, fault, interpreter.

    `by` is what starts a program that is not the container's first: a shell, an interpreter, or a script.
    """
    words, by = list(entry), ""
    while words:
        word = words.pop(0)
        name = posixpath.basename(word)
        program = _located(root, path, word, workdir)
        if not program:
            return
        fault, interpreter = start_fault(root, path, program) if "/" in program else (ABSENT, "")
        target = root.real(interpreter) if fault == NO_INTERPRETER and interpreter.startswith("/") else ""
        yield {
            "word": word,
            "program": program,
            "fault": fault,
            "interpreter": interpreter,
            "target": target if target != interpreter else "",
            "by": by,
        }
        if fault:
            return
        if name in INIT_PROGRAMS:
            while words and words[0].startswith("-"):
                words.pop(0)
        elif name in SHELLS or PYTHON.fullmatch("/" + name):
            yield from _interpreted(root, path, words, workdir, program)
            return
        else:
            text = root.text(program, MAX_SCRIPT) or ""
            if not text.startswith("#!"):
                return
            yield from _in_script(root, path, program, text)
            if not PASSES_ON.search(text):
                return
        by = program


def _interpreted(root: rootfs.Root, path: str, words: Sequence[str], workdir: str, by: str) -> Iterator[dict[str, str]]:
    """Yield the script that an interpreter is given, or a shell line's first program."""
    if words and re.fullmatch(r"-[a-z]*c", words[0]) and posixpath.basename(by) in SHELLS:
        line = words[1] if len(words) > 1 else ""
        program = "" if MOVES_PATH.search(line) else _first_word(line)
        located = _located(root, path, program, workdir) if program else ""
        if located:
            fault, interpreter = start_fault(root, path, located) if "/" in located else (ABSENT, "")
            fault = "" if fault == NO_FORMAT else fault  # a shell runs it itself
            yield {"word": program, "program": located, "fault": fault, "interpreter": interpreter, "by": by}
        yield from _in_lines(root, path, [part.strip() for part in re.split(r"&&|;", line)], by)
    elif words and not words[0].startswith("-"):
        script = posixpath.join(workdir, words[0]) if workdir or words[0].startswith("/") else ""
        if not script:
            return
        entry = root.behind(script)
        text = root.text(script, MAX_SCRIPT) or ""
        fault = ABSENT if not entry else FOLDER if stat.S_ISDIR(entry.mode) else ""
        if not fault and posixpath.basename(by) in SHELLS and re.search(r"\r\n", text):
            fault = CARRIAGE_RETURN
        yield {"word": words[0], "program": script, "fault": fault, "interpreter": "", "by": by}
        if not fault and posixpath.basename(by) in SHELLS:
            yield from _in_script(root, path, script, text)


def _in_script(root: rootfs.Root, path: str, script: str, text: str) -> Iterator[dict[str, str]]:
    """Yield the programs that a shell's script becomes without a condition.

    They are named by absolute paths.
    """
    for program in dict.fromkeys(LAST_EXEC.findall(text)):
        fault, interpreter = start_fault(root, path, program)
        if fault:
            yield {"word": program, "program": program, "fault": fault, "interpreter": interpreter, "by": script}
    yield from _in_lines(root, path, text.split("\n"), script)


def _in_lines(root: rootfs.Root, path: str, lines: Sequence[str], by: str) -> Iterator[dict[str, str]]:
    """Yield programs that start a job and are not on PATH, up to a change of PATH."""
    for line in lines:
        if MOVES_PATH.search(line):
            return
        match = STARTS_A_JOB.match(line)
        if match and path and not which(root, path, match.group(1)):
            yield {"word": match.group(1), "program": match.group(1), "fault": ABSENT, "interpreter": "", "by": by}
            return


def _located(root: rootfs.Root, path: str, word: str, workdir: str) -> str:
    """Return the path of a program that a word names; the word itself where PATH has none.

    "" where that is not known.
    """
    if "/" in word:
        return posixpath.normpath(posixpath.join(workdir, word)) if workdir or word.startswith("/") else ""
    if not path:
        return ""
    return which(root, path, word) or next(
        ("%s/%s" % (folder.rstrip("/"), word) for folder in path.split(":") if root.is_file("%s/%s" % (folder, word))),
        word,
    )


def _first_word(line: str) -> str:
    """Return the program that a shell's line begins with; "" where it is not plain."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return ""
    while words and (words[0] == "exec" or re.fullmatch(r"\w+=[^$`]*", words[0])):
        words.pop(0)
    plain = words and PLAIN_WORD.fullmatch(words[0]) and not BUILT_IN.fullmatch(words[0])
    return words[0] if plain else ""


def unstartable(root: rootfs.Root, path: str) -> dict[str, list[str]]:
    """Return the scripts on PATH whose interpreter is missing, by interpreter.

    As in an environment that was moved.
    """
    scripts: dict[str, list[str]] = {}
    programs = [
        "%s/%s" % (folder.rstrip("/"), name)
        for folder in dict.fromkeys(path.split(":"))
        if folder.startswith("/") and root.real(folder) not in SYSTEM_FOLDERS
        for name in root.names(folder)
    ]
    for program in programs[:MAX_SCRIPTS]:
        head = root.start(program, 2)
        fault, interpreter = start_fault(root, path, program) if head == b"#!" else ("", "")
        if fault == NO_INTERPRETER and PYTHON.fullmatch(interpreter):
            scripts.setdefault(interpreter, []).append(program)
    return {interpreter: paths[:MAX_NAMES] for interpreter, paths in scripts.items()}


def mpi_components(root: rootfs.Root, environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the components of PATH's Open MPI by framework, files and built in."""
    mpirun = which(root, environment.get("PATH", ""), "mpirun")
    prefixes = [environment.get("OPAL_PREFIX", ""), posixpath.dirname(posixpath.dirname(mpirun))] if mpirun else []
    prefixes += [posixpath.dirname(posixpath.dirname(root.real(mpirun)))] if mpirun else []
    folders = [folder for prefix in prefixes if prefix for form in MPI_FOLDERS for folder in root.glob(form % prefix)]
    libraries = [file for prefix in prefixes if prefix for form in MPI_FILES for file in root.glob(form % prefix)]
    names = (
        [match.groups() for name in root.names(folders[0]) if (match := MPI_COMPONENT.fullmatch(name))]
        if folders
        else []
    )
    for library in (
        (libraries[0], *root.glob(posixpath.dirname(libraries[0]) + "/libopen-pal.so.*")) if libraries else ()
    ):
        names += root.apply(built_in_components, library)
    components: dict[str, list[str]] = {}
    for framework, name in dict.fromkeys(map(tuple, names)):
        components.setdefault(framework, []).append(name)
    return components


def built_in_components(path: str) -> list[tuple[str, ...]]:
    """Return framework and name of each component that a library of Open MPI has in itself."""
    try:
        symbols = elf.exported(path, BUILT_IN_COMPONENT)
    except (OSError, elf.NotElf):
        return []
    return [tuple(symbol.split("_", 2)[1:]) for symbol in (name[: -len("_component")] for name in symbols)]
