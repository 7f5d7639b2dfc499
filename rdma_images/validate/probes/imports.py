"""Import packages, each in a process of its own that has imported torch before."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rdma_images.validate.probes import (
    distributions,
    elf,
    extensions,
    opened,
    plugin_host,
    pytorch,
    requires_dist,
    rootfs,
    shadows,
    tools,
)

Distribution = distributions.Distribution
MODULE_SECONDS = 30  # seconds for one package
TOTAL_SECONDS = 40  # seconds for all of them, so that the whole validation ends within a minute
DOUBTED_SECONDS = 15  # seconds of these that are left as the last import beside the GPU stack begins
MAX_PROCESSES = 2  # each may take a gigabyte
MAX_FAILURES = 40
MAX_MESSAGE = 500  # characters of a message
MAX_ANSWER = 1 << 16  # bytes
OPERATOR_BUILDER = "torch.utils.cpp_extension"  # operators where they run, with setuptools
MAX_TEXT = 20000
MAX_LOADED = 4000  # names of modules
MAX_CHAIN = 20
MISSING_NAME = re.compile(r"(cannot import name .+) \(/[^()]*\)$")
MISSING_ATTRIBUTE = re.compile(r"(module '([\w.]+)' has no attribute '\w+')(?=\.|$)")
# What Python and setuptools no longer have.
REMOVED_MODULES = ("pkg_resources", "distutils", "imp", "asynchat", "asyncore", "cgi", "pipes", "telnetlib", "audioop")
NONE_MESSAGE = re.compile(r"'NoneType' object")  # which may be what is found without a GPU
# As pkg_resources.DistributionNotFound has it, and others after it: transformers/utils/versions.py.
MISSING_DISTRIBUTION = re.compile(r"'([A-Za-z0-9][\w.-]*)[^']*' distribution was not found")
# The driver's libraries, each with what its functions are called and what they return without a GPU:
# CUDA_ERROR_NO_DEVICE of cuda.h, NVML_ERROR_LIBRARY_NOT_FOUND of nvml.h.
DRIVER_LIBRARIES = {
    "libcuda.so.1": (re.compile(rb"cu[A-Z]\w*"), 100),
    "libnvidia-ml.so.1": (re.compile(rb"nvml\w+"), 12),
}
# What only a machine without a GPU meets, or a process that may start few threads.
MACHINE_DEPENDENT = re.compile(
    r"libcuda\.so|libnvidia-|undefined symbol: (?:cu[A-Z]|nvml)|cuInit|NVML|CUDA_ERROR|cudaError|CUDA error|HIP error"
    r"|NVIDIA driver|CUDA driver|active drivers|device type|[Nn]o (?:NVIDIA |CUDA |HIP )?(?:GPU|device)"
    r"|(?:[Rr]equires?|[Nn]eeds?) (?:an? )?(?:NVIDIA |CUDA |HIP )*(?:GPU|CUDA|HIP|Ampere|Ada|Hopper|Blackwell)"
    r"|(?:GPU|CUDA|HIP) is (?:required|needed)|(?:GPU|CUDA|HIP)s? not (?:found|available)|compute capability"
    r"|(?:GPU|CUDA|device)s? (?:is|are|was|were) (?:not|un)|not compiled with CUDA|start new thread|libibverbs\.so"
)
LOADER_MESSAGE = re.compile(
    r"cannot open shared object file|undefined symbol|version `|invalid ELF header|file too short|wrong ELF class"
    r"|static TLS block|executable stack"
)
# Messages of other exceptions than ImportError that are the same on every machine.
MACHINE_INDEPENDENT = re.compile(
    r"operator [\w:.]+ does not exist|undefined symbol|_ARRAY_API|numpy\.dtype size changed|multiarray failed"
    r"|compiled using NumPy 1|module '[\w.]+' has no attribute|partially initialized module|cannot import name"
    r"|unexpected keyword argument|Descriptors cannot|mutable default|metaclass conflict"
    r"|(?:requires?|required|supports?|need\w*|incompatible|older|newer|found|installed)\b.*\d+\.\d+"
    r"|\d+\.\d+.* (?:does|do) not match|library not found"
)
MACHINE_INDEPENDENT_TYPES = re.compile(
    r"SyntaxError|IndentationError|(?:Contextual)?VersionConflict|AttributeError|NameError|TypeError|Pydantic\w*Error"
)


class ImportTask(NamedTuple):
    """A module to import; `stands_in_for_driver`: with libraries in the place of the driver's."""

    package: Distribution
    module: str
    is_of_stack: bool = True
    stands_in_for_driver: bool = False


class ImportContext(NamedTuple):
    """What explains failures: the packages of all modules, and what hides what."""

    gpu_stack: list[Distribution]
    owners: dict[str, Distribution]
    shadows: dict[str, shadows.Shadow]


class RunningImport(NamedTuple):
    """The process that imports a module, killed at the `deadline` of `time.monotonic`."""

    process_id: int
    task: ImportTask
    deadline: float
    output: bytes = b""


def import_packages(workdir: str = "") -> dict[str, Any] | None:
    """Import the packages of the GPU stack, and others that may be broken.

    What the want of a GPU, of a network or of a file system to write to brings about is no failure, nor is what takes
    too long, nor a module that others than the GPU stack's packages lack and do not require.

    Args:
        workdir: The folder in which the image's program starts; "" where none is known.

    Returns:
        None where there is nothing to import, else {"imported", "failed", "unopened", "hidden"}:
        "imported" has the versions of the GPU stack's packages by name. Each of "failed" has `package`, `version`,
        `module`, the exception's type as `error`, "" where NumPy complains of an import that works, and its `words`;
        whether these are `certain`, the same on every machine; the packages that it went `through`; the module
        `missing`, and whether it is `required`; the `shadow`, what comes before what and by what, and the `lost` file
        of a package, "name version: file", that explain it. For "unopened" see
        opened.unopened, for "overwritten" distributions.overwritten, and for "hidden", what a program in `workdir` does
        not find, shadows.failing_imports.
    """
    installed = list(distributions.read_distributions(rootfs.Root(), sys.path))
    gpu_stack = distributions.select_gpu_stack(installed)
    doubted = distributions.select_doubted(installed, gpu_stack)
    if not gpu_stack and not doubted:
        return None
    standard = (
        distributions.IMPORTED_FIRST
        if importlib.util.find_spec(distributions.IMPORTED_FIRST)
        else (gpu_stack or doubted)[0].modules[0]
    )
    results = list(_import_results(gpu_stack, doubted, installed, time.monotonic() + TOTAL_SECONDS))
    return {
        "imported": {result["package"]: result["version"] for result in results if result.get("imported")},
        "failed": [result for result in results if result.get("words") is not None][:MAX_FAILURES],
        "unopened": opened.unopened(
            sys.path,
            {path: "%s %s" % (package.name, package.version) for package in installed for path in package.compiled},
        ),
        "overwritten": distributions.overwritten(rootfs.Root(), installed),
        "hidden": shadows.failing_imports(workdir, sys.path, standard) if workdir else [],
    }


def _import_results(
    gpu_stack: list[Distribution],
    doubted: list[Distribution],
    installed: list[Distribution],
    deadline: float,
) -> Iterator[dict[str, Any]]:
    """Yield what a process that has imported torch says of each module, up to the deadline.

    Those that are doubted come after the GPU stack, where nothing of it has imported them.
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        _run_and_exit(lambda: _import_in_processes(gpu_stack, doubted, installed, writer, deadline))
    os.close(writer)
    output, is_open = b"", True
    while is_open and select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reader, MAX_ANSWER)
        output, is_open = output + part, bool(part)
    os.close(reader)
    for line in output.splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def _run_and_exit(run: Any) -> None:
    """Run what a new process has to do, and end it."""
    with contextlib.suppress(BaseException):
        run()
    os._exit(0)


def _import_in_processes(
    gpu_stack: list[Distribution],
    doubted: list[Distribution],
    installed: list[Distribution],
    writer: int,
    deadline: float,
) -> None:
    """Import each module in a process that has imported torch, and write the result.

    torch is imported first where one of the packages needs it.
    """
    sys.path[:] = [path for path in sys.path if path]
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    if os.path.exists(extensions.GPU):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a job may be using them
    needs_torch = any(
        distributions.IMPORTED_FIRST in distribution.requires | distribution.extras for distribution in gpu_stack
    )
    if needs_torch and importlib.util.find_spec(distributions.IMPORTED_FIRST):
        importlib.import_module(distributions.IMPORTED_FIRST)
    owners = {name: package for package in installed for name in package.names}
    context = ImportContext(gpu_stack, owners, shadows.find_shadows(sys.path))
    waiting = [
        ImportTask(package, module) for package in gpu_stack for module in package.modules if module not in sys.modules
    ]
    if distributions.IMPORTED_FIRST in sys.modules and {distributions.IMPORTED_FIRST, "setuptools"} <= owners.keys():
        waiting.append(ImportTask(owners[distributions.IMPORTED_FIRST], OPERATOR_BUILDER))
    waiting += [ImportTask(package, module, is_of_stack=False) for package in doubted for module in package.modules]
    loaded = set(sys.modules)
    running: dict[int, RunningImport] = {}
    while waiting or running:
        while waiting and len(running) < MAX_PROCESSES:
            if not waiting[0].is_of_stack and any(started.task.is_of_stack for started in running.values()):
                break  # what these import need not be imported again
            task = waiting.pop(0)
            is_late = time.monotonic() > deadline - DOUBTED_SECONDS
            if task.is_of_stack or not (task.module in loaded or is_late):
                running.update([_start_import(task, context)])
        for reader in select.select(list(running), [], [], 0.1)[0]:
            part = os.read(reader, MAX_ANSWER)
            running[reader] = running[reader]._replace(output=running[reader].output + part)
            if not part:
                waiting[:0] = _finish_import(reader, running.pop(reader), writer, loaded)
        for started in running.values():
            if time.monotonic() > min(started.deadline, deadline):
                os.kill(started.process_id, signal.SIGKILL)


def _start_import(task: ImportTask, context: ImportContext) -> tuple[int, RunningImport]:
    """Start the process that imports a module; return the pipe of its answer, and the process."""
    reader, writer = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        os.close(reader)
        _run_and_exit(lambda: _import(task, context, writer))
    os.close(writer)
    return reader, RunningImport(process_id, task, time.monotonic() + MODULE_SECONDS)


def _finish_import(reader: int, ended: RunningImport, writer: int, loaded: set[str]) -> list[ImportTask]:
    """Write the answer of an import; return the task to try again with a stand-in, if any.

    Adds to `loaded` what the module has imported.
    """
    os.close(reader)
    _, status = os.waitpid(ended.process_id, 0)
    package, module, is_of_stack, stands_in_for_driver = ended.task
    signal_number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    try:
        answer = json.loads(ended.output)
    except ValueError:
        answer = describe_crash(module, signal_number) if signal_number not in (0, signal.SIGKILL) else {}
    if not stands_in_for_driver and any(name in answer.get("text", "") for name in DRIVER_LIBRARIES):
        return [ended.task._replace(stands_in_for_driver=True)]
    answer.pop("text", None)
    loaded.update(answer.pop("loaded", ()))
    if not is_of_stack and (not answer.get("certain") or (answer.get("missing") and not answer.get("required"))):
        return []
    os.write(writer, json.dumps({"package": package.name, "version": package.version, **answer}).encode() + b"\n")
    return []


def _import(task: ImportTask, context: ImportContext, writer: int) -> None:
    """Import a module, and write why that fails."""
    package, module, _, stands_in_for_driver = task
    before = set(sys.modules)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory ends, this process goes first
    if stands_in_for_driver:
        stand_in_for_driver([path for distribution in context.gpu_stack for path in distribution.compiled])
    answer: dict[str, Any] = {}
    with pytorch.captured_errors() as printed:
        try:
            importlib.import_module(module)
            answer = {"imported": True}
        except BaseException as error:
            answer = describe_failed_import(error, module, package, context)
        complaint = pytorch.numpy_complaint(printed())
    if complaint:
        answer = {"module": module, "error": "", **answer, "certain": True, "words": complaint}
    names = (
        name for name in sys.modules.keys() - before if name.partition(".")[0] in context.owners and name.count(".") < 2
    )
    answer["loaded"] = sorted(names)[:MAX_LOADED]
    with os.fdopen(writer, "wb") as out:
        out.write(json.dumps(answer).encode())


def stand_in_for_driver(paths: Iterable[str]) -> None:
    """Load libraries for the driver's that `paths` need: each of their functions finds no GPU."""
    paths = list(paths)
    for name, (pattern, result) in DRIVER_LIBRARIES.items():
        refuse = ctypes.CFUNCTYPE(ctypes.c_int)(lambda result=result: result)
        functions: dict[str, Any] = {}
        for path in paths:
            with contextlib.suppress(elf.NotElf, OSError, ValueError):
                if name in elf.library(path)["needed"]:
                    functions.update(dict.fromkeys(elf.undefined(path, pattern), refuse))
        if functions:
            with contextlib.suppress(OSError, KeyError, AttributeError):
                plugin_host.stand_in(name, functions)


def describe_failed_import(
    error: BaseException, module: str, package: Distribution, context: ImportContext
) -> dict[str, Any]:
    """Return why the import of a module failed, as a row of import_packages.

    `text` has the messages of all exceptions that led to it.

    Its `error` is empty where the machine is the cause.
    """
    chain = list(_chain(error))
    text = "\n".join("%s: %s" % (type(link).__name__, link) for link in chain)
    answer: dict[str, Any] = {"module": module, "error": "", "text": text[:MAX_TEXT]}
    if MACHINE_DEPENDENT.search(text) or any(map(_is_system_error, chain)):
        return answer
    link = next((link for link in chain if LOADER_MESSAGE.search(str(link))), error)
    absent = next((step for step in chain if isinstance(step, ModuleNotFoundError)), None)
    missing = _missing_name(absent) if absent and not LOADER_MESSAGE.search(str(link)) else ""
    owners = context.owners
    through = list(_packages_in_traceback(error, owners))
    within = next((owner for owner in owners.values() if owner.name == (through or [""])[-1]), package)
    top = missing.partition(".")[0]
    route = [*through, owners[top].name] if top in owners else through
    shadow = shadows.explain_failure(link, context.shadows, _required_modules(within, package, owners))
    return {
        **answer,
        "error": type(link).__name__,
        "words": _with_release(_first_line(link), link, owners)[:MAX_MESSAGE],
        "certain": any(map(_is_machine_independent, chain)),
        "through": through,
        "missing": missing,
        "required": _is_required(missing, within, owners),
        "shadow": str(shadow or ""),
        "lost": _lost_file(route, owners),
    }


def _required_modules(
    within: Distribution,
    package: Distribution,
    owners: Mapping[str, Distribution],
) -> Iterator[str]:
    """Yield the modules that two packages require, those of unmet requirements first."""
    required = [*within.requirements, *package.requirements]
    for is_first in (True, False):
        for name, owner in owners.items():
            if any(item.name == owner.name and item.is_unmet(owner.version) == is_first for item in required):
                yield name


def _is_required(missing: str, within: Distribution, owners: Mapping[str, Distribution]) -> bool:
    """Return whether a missing module has to be there.

    Its package is required, it is a part of an installed one, or it was Python's own.
    """
    top = missing.partition(".")[0]
    is_required = requires_dist.normalized_name(top) in within.requires
    return is_required or top in REMOVED_MODULES or _is_part(missing, owners)


def _is_part(missing: str, owners: Mapping[str, Distribution]) -> bool:
    """Return whether a module is one of an installed package."""
    return "." in missing and missing.partition(".")[0] in owners


def _lost_file(route: Sequence[str], owners: Mapping[str, Distribution]) -> str:
    """Return the last package of a route that lacks a file, with that file.

    What an edited file brings about is in the words of the failure.
    """
    by_name = {owner.name: owner for owner in owners.values()}
    damaged = [
        by_name[name]
        for name in route
        if name in by_name
        and by_name[name].lost
        and not os.path.exists("%s/%s" % (by_name[name].folder, by_name[name].lost))
    ]
    return "%s %s: %s" % (damaged[-1].name, damaged[-1].version, damaged[-1].lost) if damaged else ""


def _with_release(words: str, error: BaseException, owners: Mapping[str, Distribution]) -> str:
    """Return an exception's words with a release in place of its module's path."""
    match, attribute = MISSING_NAME.fullmatch(words), MISSING_ATTRIBUTE.match(words)
    name = attribute.group(2) if attribute else getattr(error, "name", None) or ""
    owner = owners.get(name.partition(".")[0])
    clause = match or attribute
    return "%s of %s %s" % (clause.group(1), owner.name, owner.version) if owner and clause else words


def _missing_name(error: ModuleNotFoundError) -> str:
    """Return the missing module or package, for which some packages write a sentence."""
    name = error.name or ""
    match = MISSING_DISTRIBUTION.search(name)
    return match.group(1) if match else name


def describe_crash(module: str, signal_number: int) -> dict[str, Any]:
    """Return that a signal ended an import, which may be for want of a GPU, as with Mooncake."""
    name = tools.signal_name(signal_number)
    return {"module": module, "error": name, "words": "the process ends with %s" % name, "certain": False}


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that led to it, as a traceback shows them."""
    link: BaseException | None = error
    for _ in range(MAX_CHAIN):
        if link is None:
            return
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _is_system_error(error: BaseException) -> bool:
    """Return whether an exception is a system call's, as of a network or a device.

    A file that lacks among Python's packages is none of these: it lacks on every machine.
    """
    return isinstance(error, OSError) and error.errno is not None and not _lacks_package_file(error)


def _lacks_package_file(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) and "-packages/" in str(error.filename)


def _is_machine_independent(error: BaseException) -> bool:
    """Return whether an exception is the same on every machine.

    An ImportError in a package's own words may be about the machine.
    """
    words = str(error)
    if _lacks_package_file(error):
        return True
    is_typed = bool(MACHINE_INDEPENDENT_TYPES.fullmatch(type(error).__name__)) and not NONE_MESSAGE.search(words)
    has_type = isinstance(error, ModuleNotFoundError) or is_typed
    from_loader = isinstance(error, (ImportError, OSError)) and LOADER_MESSAGE.search(words)
    return has_type or bool(from_loader or MACHINE_INDEPENDENT.search(words))


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def _packages_in_traceback(error: BaseException, owners: Mapping[str, Distribution]) -> Iterator[str]:
    """Yield the packages that an exception went through, the one that raised it last."""
    last, step = "", error.__traceback__
    folders = [folder.rstrip("/") + "/" for folder in sys.path if folder]
    while step:
        file = step.tb_frame.f_code.co_filename
        folder = max(filter(file.startswith, folders), key=len, default="")
        owner = owners.get(file[len(folder) :].partition("/")[0].partition(".")[0]) if folder else None
        if owner and owner.name not in (last, *distributions.FRAMEWORKS):
            last = owner.name
            yield last
        step = step.tb_next
