"""Import the packages of the GPU stack, each in a process of its own that has imported torch before."""

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
    elf,
    extensions,
    loader,
    opened,
    packages,
    plugin_host,
    pytorch,
    rootfs,
    shadows,
    stack_users,
    suspects,
    tools,
)

MODULE_SECONDS = 30  # seconds for one package
TOTAL_SECONDS = 40  # seconds for all of them, so that the whole validation ends within a minute
OTHERS_SECONDS = 15  # seconds of these that are left as the last import beside the GPU stack begins
MAX_PROCESSES = 2  # each may take a gigabyte
MAX_RECORD = 8 << 20  # bytes: torch's has one million
MAX_MODULES = 4  # of a package that has none of its own name
MAX_FAILURES = 40
MAX_MESSAGE = 500  # characters of a message
MAX_ANSWER = 1 << 16  # bytes
FRAMEWORKS = ("torch", "jax", "jaxlib")
IMPORTED_FIRST = "torch"  # by torch.imports, too
COMPILES = "torch.utils.cpp_extension"  # operators where they run, with setuptools
MAX_TEXT = 20000
MAX_LOADED = 4000  # names of modules
MAX_CHAIN = 20
WITHOUT_NAME = re.compile(r"(cannot import name .+) \(/[^()]*\)$")
WITHOUT_ATTRIBUTE = re.compile(r"(module '([\w.]+)' has no attribute '\w+')(?=\.|$)")
# What Python and setuptools no longer have.
ONCE_STANDARD = ("pkg_resources", "distutils", "imp", "asynchat", "asyncore", "cgi", "pipes", "telnetlib", "audioop")
OF_NOTHING = re.compile(r"'NoneType' object")  # which may be what is found without a GPU
OF_DRIVER = re.compile(r"libcuda\.|libnvidia-")
REQUIREMENT = re.compile(r"^Requires-Dist: *([A-Za-z0-9][\w.-]*)(.*)$", re.MULTILINE)
# As pkg_resources.DistributionNotFound has it, and others after it: transformers/utils/versions.py.
MISSING_DISTRIBUTION = re.compile(r"'([A-Za-z0-9][\w.-]*)[^']*' distribution was not found")
EXTENSION_SUFFIX = re.compile(r"\.(?:cpython-\w+(?:-[\w-]+)?|abi3)?\.?so$|\.so$")
INTERNAL_MODULE = re.compile(r"_.*|(?:tests?|testing|examples?|samples?|docs?|benchmarks?|scripts?)\d*")
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
)
MACHINE_INDEPENDENT_TYPES = re.compile(
    r"SyntaxError|IndentationError|(?:Contextual)?VersionConflict|AttributeError|NameError|TypeError|Pydantic\w*Error"
)


class Distribution(NamedTuple):
    """An installed package: what it requires, what only its extras do, its modules, and its compiled files.

    `names` are the first names of all its modules, `modules` those of them to import. `requirements` are what it
    requires, each with its versions and its marker; `lost` is a file of it that is not as it was installed.
    """

    name: str
    version: str
    requires: frozenset[str]
    extras: frozenset[str]
    modules: list[str]
    compiled: list[str]
    names: frozenset[str]
    folder: str
    requirements: list[tuple[str, str, str]]
    lost: str


class ImportTask(NamedTuple):
    """A module to import, whether it is of the GPU stack, and whether libraries stand in for the driver's."""

    package: Distribution
    module: str
    is_of_stack: bool = True
    stands_in_for_driver: bool = False


class ImportContext(NamedTuple):
    """The packages of the GPU stack, all packages by the first names of their modules, and what hides what."""

    chosen: list[Distribution]
    owners: dict[str, Distribution]
    shadows: dict[str, shadows.Shadow]


class RunningImport(NamedTuple):
    """The process that imports a module: the time of `time.monotonic` at which it is killed, and what it wrote."""

    process_id: int
    task: ImportTask
    deadline: float
    output: bytes = b""


def imported_packages(workdir: str = "") -> dict[str, Any] | None:
    """Import the GPU stack's packages and those that doubted() names, and return what was found.

    {"imported", "failed", "unopened", "hidden"}: "unopened" is what opened.unopened() returns.
    "imported" are versions of the GPU stack's packages by name, "hidden" is what a program does not find that starts in
    `workdir`: see shadows.failing.
    Each of "failed" has package, version, module, the exception's type and words, whether these are `certain`, that is
    the same on every machine, the packages that it went `through`, and the module `missing`, with whether the package
    in which it is missing requires it; and what explains it: the `shadow`, what comes before what and by what, and the
    `lost` file of a package, "name version: file". The type is "" where the import works and NumPy complains of it.
    None where there is nothing to import.

    What the want of a GPU, of a network or of a file system to write to brings about is in neither, nor is what takes
    too long, nor a module that others than the GPU stack's packages lack and do not require.
    """
    distributions = list(installed(rootfs.Root(), sys.path))
    chosen = gpu_stack(distributions)
    others = doubted(distributions, chosen)
    if not chosen and not others:
        return None
    standard = IMPORTED_FIRST if importlib.util.find_spec(IMPORTED_FIRST) else (chosen or others)[0].modules[0]
    results = list(_import_results(chosen, others, distributions, time.monotonic() + TOTAL_SECONDS))
    return {
        "imported": {result["package"]: result["version"] for result in results if result.get("imported")},
        "failed": [result for result in results if result.get("words") is not None][:MAX_FAILURES],
        "unopened": opened.unopened(
            sys.path,
            {path: "%s %s" % (package.name, package.version) for package in distributions for path in package.compiled},
        ),
        "hidden": shadows.failing(workdir, sys.path, standard) if workdir else [],
    }


def installed(root: rootfs.Root, folders: Iterable[str]) -> Iterator[Distribution]:
    """Yield each package in `folders`; of two of a name, the first."""
    names = set()
    order = list(map(root.real, filter(None, folders)))
    records = sorted(packages.records(root, order), key=lambda pair: order.index(pair[0]))
    for folder, record in records:
        name, version = packages.wheel(root, record)
        if name in names:
            continue
        names.add(name)
        head = (root.text(record, packages.HEAD) or "").replace("\r\n", "\n").split("\n\n", 1)[0]
        required = [
            (packages.NAME.sub("-", requirement).lower(), *rest.partition(";")[::2])
            for requirement, rest in REQUIREMENT.findall(head)
        ]
        home = os.path.dirname(record)
        files = _files(root.text(home + "/RECORD", MAX_RECORD) or "")
        top_level = (root.text(home + "/top_level.txt", packages.HEAD) or "").split()
        yield Distribution(
            name,
            version,
            frozenset(requirement for requirement, _, marker in required if "extra" not in marker),
            frozenset(requirement for requirement, _, marker in required if "extra" in marker),
            modules_to_import(name, modules(files) if files else top_level),
            ["%s/%s" % (folder, path) for path in files if stack_users.SHARED.fullmatch(path) and path[0] not in "./"],
            frozenset(module.partition(".")[0] for module in modules(files) or top_level),
            folder,
            required,
            suspects.lost_file(folder, files),
        )


def _files(record: str) -> dict[str, int]:
    """Return the files that a RECORD lists, with their sizes in bytes."""
    rows = (line.rsplit(",", 2) for line in record.splitlines())
    return {row[0].strip('"'): int(row[2]) if row[2].isdigit() else 1 for row in rows if len(row) == 3}


def modules(files: Mapping[str, int]) -> list[str]:
    """Return the modules that can be imported by a first name, or by two where the first is a namespace's alone.

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


def modules_to_import(package: str, names: Iterable[str]) -> list[str]:
    """Return the modules to import of a package: the one of its name, else what its name begins with, or its only one.

    Those of a namespace all count. Others beside them may be what a build left, as flashinfer's build_backend.
    """
    module_name = package.replace("-", "_")
    public = [name for name in names if not any(map(INTERNAL_MODULE.fullmatch, name.split(".")))]
    related = [name for name in public if module_name.startswith(name.lower()) or "." in name]
    return (
        [name for name in public if name.lower() == module_name] or related[:MAX_MODULES] or public * (len(public) == 1)
    )


def gpu_stack(distributions: Iterable[Distribution]) -> list[Distribution]:
    """Return the packages that require torch or jax, link libraries of the GPU stack, or lack some, without torch.

    Of those that the frameworks require themselves, these are the compiled ones. What requires a framework for an extra
    alone counts: it is made to be used with it.
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


def doubted(distributions: Sequence[Distribution], chosen: Iterable[Distribution]) -> list[Distribution]:
    """Return the packages beside the `chosen` ones that may be broken, or that somebody installed for themselves.

    Those are compiled, lack a file or a requirement, or are what no other package requires.
    """
    versions = {distribution.name: distribution.version for distribution in distributions}
    required = {name for distribution in distributions for name in distribution.requires | distribution.extras}
    passed_over = {IMPORTED_FIRST, *(distribution.name for distribution in chosen)}
    return [
        distribution
        for distribution in distributions
        if distribution.modules
        and distribution.name not in passed_over
        and distribution.folder != suspects.OF_SYSTEM
        and (
            distribution.lost
            or distribution.compiled
            or distribution.name not in required
            or any(
                suspects.is_unmet(specifiers, marker, versions.get(name))
                for name, specifiers, marker in distribution.requirements
            )
        )
    ]


def _is_absent(library: str, absent: dict[str, bool]) -> bool:
    """Return whether the loader finds no `library`, which is not the driver's; `absent` keeps its answers."""
    if library not in absent:
        absent[library] = not OF_DRIVER.match(library) and not loader.resolved(library)["file"]
    return absent[library]


def _needed(path: str) -> list[str]:
    try:
        needed: list[str] = elf.library(path)["needed"]
    except (elf.NotElf, OSError):
        return []
    return needed


def _import_results(
    chosen: list[Distribution], others: list[Distribution], distributions: list[Distribution], deadline: float
) -> Iterator[dict[str, Any]]:
    """Yield the result of each module's import, as a process that has imported torch writes it, up to the deadline.

    The `others` come after the `chosen` ones, where none of these has imported them.
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        _run_and_exit(lambda: _import_in_processes(chosen, others, distributions, writer, deadline))
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
    chosen: list[Distribution],
    others: list[Distribution],
    distributions: list[Distribution],
    writer: int,
    deadline: float,
) -> None:
    """Import each module in a new process, after torch where packages need it, and write the result."""
    sys.path[:] = [path for path in sys.path if path]
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    if os.path.exists(extensions.GPU):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a job may be using them
    needs_torch = any(IMPORTED_FIRST in distribution.requires | distribution.extras for distribution in chosen)
    if needs_torch and importlib.util.find_spec(IMPORTED_FIRST):
        importlib.import_module(IMPORTED_FIRST)
    owners = {name: package for package in distributions for name in package.names}
    context = ImportContext(chosen, owners, shadows.shadows(sys.path))
    waiting = [
        ImportTask(package, module) for package in chosen for module in package.modules if module not in sys.modules
    ]
    if IMPORTED_FIRST in sys.modules and {IMPORTED_FIRST, "setuptools"} <= owners.keys():
        waiting.append(ImportTask(owners[IMPORTED_FIRST], COMPILES))
    waiting += [ImportTask(package, module, is_of_stack=False) for package in others for module in package.modules]
    loaded = set(sys.modules)
    running: dict[int, RunningImport] = {}
    while waiting or running:
        while waiting and len(running) < MAX_PROCESSES:
            if not waiting[0].is_of_stack and any(started.task.is_of_stack for started in running.values()):
                break  # what these import need not be imported again
            task = waiting.pop(0)
            is_late = time.monotonic() > deadline - OTHERS_SECONDS
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
    """Start the process that imports a module, and return the end of the pipe from which its answer is read, too."""
    reader, writer = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        os.close(reader)
        _run_and_exit(lambda: _import(task, context, writer))
    os.close(writer)
    return reader, RunningImport(process_id, task, time.monotonic() + MODULE_SECONDS)


def _finish_import(reader: int, ended: RunningImport, writer: int, loaded: set[str]) -> list[ImportTask]:
    """Write the answer of a module's import; return the task that is to be tried again with a stand-in, if any.

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
        stand_in_for_driver([path for distribution in context.chosen for path in distribution.compiled])
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
    """Map libraries in the place of the driver's, which the files at `paths` need: every function finds no GPU."""
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
    """Return why the import of a module failed, as a row of imported_packages.

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
    shadow = shadows.of_failure(link, context.shadows, _required_modules(within, package, owners))
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


def _required_modules(within: Distribution, package: Distribution, owners: Mapping[str, Distribution]) -> Iterator[str]:
    """Yield the first names of the modules that two packages require, those of unmet requirements first."""
    required = [*within.requirements, *package.requirements]
    for is_first in (True, False):
        for name, owner in owners.items():
            of_owner = ((wanted, marker) for other, wanted, marker in required if other == owner.name)
            if any(suspects.is_unmet(wanted, marker, owner.version) == is_first for wanted, marker in of_owner):
                yield name


def _is_required(missing: str, within: Distribution, owners: Mapping[str, Distribution]) -> bool:
    """Return whether a module that is not there has to be: it is required, of an installed package, or was Python's."""
    top = missing.partition(".")[0]
    is_required = packages.NAME.sub("-", top).lower() in within.requires
    return is_required or top in ONCE_STANDARD or _is_part(missing, owners)


def _is_part(missing: str, owners: Mapping[str, Distribution]) -> bool:
    """Return whether a module is one of an installed package."""
    return "." in missing and missing.partition(".")[0] in owners


def _lost_file(route: Sequence[str], owners: Mapping[str, Distribution]) -> str:
    """Return the last package of a route that lacks a file, or has another in its place, with that file."""
    by_name = {owner.name: owner for owner in owners.values()}
    damaged = [by_name[name] for name in route if name in by_name and by_name[name].lost]
    return "%s %s: %s" % (damaged[-1].name, damaged[-1].version, damaged[-1].lost) if damaged else ""


def _with_release(words: str, error: BaseException, owners: Mapping[str, Distribution]) -> str:
    """Return an exception's words with the release that has the module without the name, in place of its path."""
    match, attribute = WITHOUT_NAME.fullmatch(words), WITHOUT_ATTRIBUTE.match(words)
    name = attribute.group(2) if attribute else getattr(error, "name", None) or ""
    owner = owners.get(name.partition(".")[0])
    clause = match or attribute
    return "%s of %s %s" % (clause.group(1), owner.name, owner.version) if owner and clause else words


def _missing_name(error: ModuleNotFoundError) -> str:
    """Return the module or package that is not there; some packages put a sentence in the place of its name."""
    name = error.name or ""
    match = MISSING_DISTRIBUTION.search(name)
    return match.group(1) if match else name


def describe_crash(module: str, signal_number: int) -> dict[str, Any]:
    """Return that a signal ended the import of a module, which may be for want of a GPU, as of Mooncake's."""
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
    """Return whether an exception is a system call's, as of a network, of a file that is read-only, or of a device.

    A file that lacks among Python's packages lacks on every machine.
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
    is_typed = bool(MACHINE_INDEPENDENT_TYPES.fullmatch(type(error).__name__)) and not OF_NOTHING.search(words)
    has_type = isinstance(error, ModuleNotFoundError) or is_typed
    from_loader = isinstance(error, (ImportError, OSError)) and LOADER_MESSAGE.search(words)
    return has_type or bool(from_loader or MACHINE_INDEPENDENT.search(words))


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def _packages_in_traceback(error: BaseException, owners: Mapping[str, Distribution]) -> Iterator[str]:
    """Yield the packages whose code an exception went through, to the one in which it was raised."""
    last, step = "", error.__traceback__
    folders = [folder.rstrip("/") + "/" for folder in sys.path if folder]
    while step:
        file = step.tb_frame.f_code.co_filename
        folder = max(filter(file.startswith, folders), key=len, default="")
        owner = owners.get(file[len(folder) :].partition("/")[0].partition(".")[0]) if folder else None
        if owner and owner.name not in (last, *FRAMEWORKS):
            last = owner.name
            yield last
        step = step.tb_next
