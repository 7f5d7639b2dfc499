"""Measurements of the probes, checked for their form: what an image under test prints is untrusted."""

from typing import Annotated

from pydantic import Field, ValidationError

from rdma_images.core.plain import first_misfit
from rdma_images.inspection.machine import Devices, MeasuredGpus
from rdma_images.inspection.values import Count, MeasuredValue, Probe, ToolRun


class Leftovers(MeasuredValue):
    """Files that have no business in an image: path -> why."""

    secret: dict[str, str] = Field(default_factory=dict)
    cache: dict[str, str] = Field(default_factory=dict)
    temporary: dict[str, str] = Field(default_factory=dict)


class LibraryFile(MeasuredValue):
    """A library's file or link: its size in bytes and the link's target.

    `identity` is the same for all names of a file. `condition` is why it can be no library of this machine, see
    probes/conditions.py; `closed` is the file or folder that keeps the image's user from reading it.
    """

    size: Count
    target: str = ""
    identity: str = ""
    condition: str = ""
    closed: str = ""


class FileUser(MeasuredValue):
    """The image's user: its name in /etc/passwd, and where of what it needs it may write."""

    number: int
    named: bool
    may_write: dict[str, bool]
    unwritable: dict[str, tuple[str, str]] = Field(default_factory=dict)  # see probes/access.py


class Files(MeasuredValue):
    """The file tree in short. `sizes` are bytes by place, the largest only."""

    count: Count
    bytes: Count
    libraries: dict[str, LibraryFile]
    sizes: dict[str, Count]
    leftovers: Leftovers
    world_writable: list[str]
    set_user_id: list[str] = Field(default_factory=list)  # programs of a job
    user: FileUser | None = None


class NcclFile(MeasuredValue):
    """A libnccl: its banner ("2.28.9+cuda13.0"), and the ABIs and names it looks for."""

    error: str = ""
    banner: str = ""
    looks_for: dict[str, list[int]] = Field(default_factory=dict)
    file_names: list[str] = Field(default_factory=list)
    runpath: list[str] = Field(default_factory=list)

    @property
    def version(self) -> str:
        """Return the banner without the CUDA it was built with."""
        return self.banner.partition("+")[0]

    @property
    def cuda(self) -> str:
        """Return the CUDA that it was built with, "" where the banner does not say."""
        return self.banner.partition("+cuda")[2]


class PluginFile(MeasuredValue):
    """A network or tuner plugin: the ABIs that it exports, by kind, and what it needs.

    `version` is "" for what is no release of aws-ofi-nccl. `aws_platform` is whether an aws-ofi-nccl was built with the
    AWS platform, None for another plugin. `project` is whose plugin it is by its own strings, "" where they do not say.
    `opens` are libraries that it opens by their names, and `topologies` the files that it gives to NCCL, each on an
    instance type.
    """

    error: str = ""
    project: str = ""
    version: str = ""
    aws_platform: bool | None = None
    exports: dict[str, list[int]] = Field(default_factory=dict)
    needed: list[str] = Field(default_factory=list)
    opens: list[str] = Field(default_factory=list)
    topologies: list[str] = Field(default_factory=list)


class ResolvedLibrary(MeasuredValue):
    """The loader's answer for a name: path, real file, and why it is not opened."""

    path: str = ""
    file: str = ""
    error: str = ""


class Closure(MeasuredValue):
    """The libraries that a file pulls in, those missing, and the loader's refusals."""

    libraries: dict[str, str] = Field(default_factory=dict)
    missing: list[str] = Field(default_factory=list)
    faults: list[str] = Field(default_factory=list)
    error: str = ""


class Libraries(MeasuredValue):
    """The fabric's libraries, and what the loader makes of them.

    `method` says who resolved the names: the image's loader, or its cache, read without it. `gpu_code` are the
    architectures that each program of nccl-tests holds code for, `kernels` those of libraries that hold any,
    `libfabric` the version that each libfabric says of itself, "" where it does not, and `opens` what a libfabric opens
    by its name and does not find. `topologies` are the plugins' topology files that NCCL cannot use: "absent", or "no
    arch" of a processor. `users` are the other programs and libraries that need the GPU stack, each with the folders of
    its run path; `absent` the names that something needs and no file of the image has; `glibc` the version of glibc
    that a file asks for and the image has not, "GLIBC_2.38 of libc.so.6", and `foreign` the programs for another
    machine, with theirs.
    """

    nccl: dict[str, NcclFile]
    plugins: dict[str, PluginFile]
    headers: dict[str, str] = Field(default_factory=dict)
    gpu_code: dict[str, list[str]] = Field(default_factory=dict)
    kernels: dict[str, list[str]] = Field(default_factory=dict)
    resolved: dict[str, ResolvedLibrary]
    closures: dict[str, Closure]
    verbs_looks_for: dict[str, list[str]]
    libfabric: dict[str, str] = Field(default_factory=dict)
    opens: dict[str, list[str]] = Field(default_factory=dict)
    topologies: dict[str, str] = Field(default_factory=dict)
    users: dict[str, list[str]] = Field(default_factory=dict)
    absent: list[str] = Field(default_factory=list)
    glibc: dict[str, str] = Field(default_factory=dict)
    foreign: dict[str, str] = Field(default_factory=dict)
    variables: dict[str, list[str]] = Field(
        default_factory=dict
    )  # that libraries read, by prefix of those that are set
    method: str


class Tree(MeasuredValue):
    """The tree, and the libraries found in it."""

    files: Files
    libraries: Libraries


class MappedNccl(MeasuredValue):
    """A libnccl that a process mapped, and its ncclGetVersion(), "" for no answer."""

    path: str
    version: str


class ImportedTorch(MeasuredValue):
    """The state after `import torch`.

    `compiled_nccl` is a constant of torch's build, not what is loaded.
    """

    version: str
    cuda: str | None
    file: str
    compiled_nccl: str
    nccl: list[MappedNccl]
    mapped: list[str]
    extensions: dict[str, str] = Field(default_factory=dict)  # by path, why it cannot be loaded; "" for one that can
    numpy: str = ""  # what NumPy says of modules that were compiled for its version 1
    optional: list[str] = Field(default_factory=list)  # of `extensions`, without which their package goes on
    searched: list[str] = Field(default_factory=list)  # folders and files that decided this, see probes/pytorch.py


class MeasuredPackages(MeasuredValue):
    """Installed versions by name; wheels by their folder.

    `efa_installer` is "" where it did not run. `dpkg_sources` has the source package of each of Debian's, with its
    version: "glibc 2.41-12".
    """

    wheels: dict[str, dict[str, str]]
    dpkg: dict[str, str]
    rpm: dict[str, str]
    dpkg_sources: dict[str, str] = Field(default_factory=dict)
    efa_installer: str = ""
    other_python: dict[str, str] = Field(default_factory=dict)  # see probes/packages.py
    # What packages require, by folder and "name version", without what extras do that none asks for; and the compiled.
    requires: dict[str, dict[str, list[str]]] = Field(default_factory=dict)
    compiled: dict[str, list[str]] = Field(default_factory=dict)
    needs_triton: list[str] = Field(default_factory=list)  # those that require Triton themselves

    @property
    def installed(self) -> list[tuple[str, str]]:
        """Return each wheel and its version, once for every folder that it is in."""
        return [wheel for folder in self.wheels.values() for wheel in folder.items()]


class FailedImport(MeasuredValue):
    """A failed import: the exception's type and words, see probes/imports.py.

    `certain` is whether these are the same on every machine. `through` are the packages whose code the exception went
    through; `missing` is the module that is not there, and `required` whether the package that imports it requires it.
    `error` is "" where the import works, and NumPy complains of it; `shadow` is which file comes before which other,
    and by what, where the import went through it.
    """

    package: str
    version: str
    module: str
    error: str
    words: str
    certain: bool
    through: list[str] = Field(default_factory=list)
    missing: str = ""
    required: bool = False
    shadow: str = ""
    lost: str = ""  # the file of a package on the way that is not as it was installed


class HiddenModule(MeasuredValue):
    """A file of the working directory that comes before a module of its name: the import that fails there alone."""

    module: str
    first: str
    second: str
    words: str


class OverwrittenPackage(MeasuredValue):
    """A package and the `other` one that has overwritten a `file` of it, each "name version"."""

    package: str
    other: str
    file: str


class UnopenedLibraries(MeasuredValue):
    """A `file` of a package, "name version", and the libraries that it opens by their names and does not find."""

    package: str
    file: str
    missing: list[str]


class ImportedPackages(MeasuredValue):
    """The packages of the GPU stack that can be imported, and the failures of all."""

    imported: dict[str, str]
    failed: list[FailedImport]
    hidden: list[HiddenModule] = Field(default_factory=list)
    overwritten: list[OverwrittenPackage] = Field(default_factory=list)
    unopened: list[UnopenedLibraries] = Field(default_factory=list)


class WheelContents(MeasuredValue):
    """A wheel's licences, supplier and bundled libraries."""

    license: str = ""  # License-Expression
    license_field: str = ""  # License, which may be anything
    classifiers: list[str] = Field(default_factory=list)
    supplier: str = ""
    requires: list[str] = Field(default_factory=list)
    license_files: list[str] = Field(default_factory=list)  # from the folder of packages
    bundled: dict[str, str] = Field(default_factory=dict)  # path from the folder of packages -> hex, or ""
    vendored: dict[str, str] = Field(default_factory=dict)  # Python packages inside the wheel, with their versions


class DebianContents(MeasuredValue):
    """A Debian package's metadata.

    A licence that begins with "/" is only referred to, as a common licence.
    """

    architecture: str = ""
    supplier: str = ""
    depends: list[str] = Field(default_factory=list)
    licenses: list[str] = Field(default_factory=list)
    copyright: str = ""  # the file in the image


class PackageContents(MeasuredValue):
    """The packages of a bill of materials; wheels by folder and name."""

    wheels: dict[str, dict[str, WheelContents]] = Field(default_factory=dict)
    debian: dict[str, DebianContents] = Field(default_factory=dict)
    efa: list[str] = Field(default_factory=list)


class System(MeasuredValue):
    """The system the probes found themselves in."""

    os: dict[str, str]
    machine: str
    kernel: str
    python: str
    python_path: str
    user: int
    environment: dict[str, str]


class AssignedVariable(MeasuredValue):
    """A variable that a file of the image sets, and who reads it.

    Both are as they stand in the file: NCCL takes any name.
    """

    file: str
    line: Count
    name: str
    value: str
    reader: str  # see rdma_images/validate/probes/settings.py


class PythonOnPath(MeasuredValue):
    """A Python on PATH: its folder, its names, and the folders that it imports from."""

    path: str
    names: list[str]
    folders: list[str]


class StartedProgram(MeasuredValue):
    """A program that the entry point starts, named by `word`, and its fault, if any.

    `fault` is one of probes/programs.py, "" for none; `interpreter` is what its first line names; `target` is where an
    interpreter that is not there leads to as a link; `by` starts it, "" for the container's first.
    """

    word: str
    program: str
    fault: str = ""
    interpreter: str = ""
    target: str = ""
    by: str = ""


class Programs(MeasuredValue):
    """The programs that the image starts, and those that compile at run time.

    `compilers` are those on PATH by name, `elsewhere` those in other folders. `cuda_home` is the toolkit as torch finds
    it, `nvcc` the one there, `cicc` whether that has its part for GPUs, `toolkit` another one whose nvcc that starts,
    `headers` are those of it and of the C library.
    `python_headers` says of each folder that a Python names whether Python.h is in it. `unstartable` are scripts whose
    Python is not there, by that. `mpi` are the components of Open MPI's pml, mtl and btl.
    """

    started: list[StartedProgram] = Field(default_factory=list)
    compilers: dict[str, str] = Field(default_factory=dict)
    elsewhere: list[str] = Field(default_factory=list)
    cuda_home: str = ""
    nvcc: str = ""
    cicc: bool = True
    toolkit: str = ""
    headers: list[str] = Field(default_factory=list)
    python_headers: dict[str, bool] = Field(default_factory=dict)
    unstartable: dict[str, list[str]] = Field(default_factory=dict)
    mpi: dict[str, list[str]] = Field(default_factory=dict)


class Settings(MeasuredValue):
    """What files set beside the environment, and the missing paths in variables.

    `pythons` are those on PATH, in its order; none where what starts in the image may choose another.
    `without_path` is what the loader would find without LD_LIBRARY_PATH, by name; empty where that is not set.
    """

    assigned: list[AssignedVariable]
    absent: list[str]
    pythons: list[PythonOnPath] = Field(default_factory=list)
    without_path: dict[str, str] = Field(default_factory=dict)
    programs: Programs | None = None
    loader_folders: dict[str, str] = Field(default_factory=dict)  # that ldconfig's files name, with the file


class EntryPointChanges(MeasuredValue):
    """The variables of ours that the entry point gives its process, or removes."""

    given: dict[str, str] = Field(default_factory=dict)
    removed: list[str] = Field(default_factory=list)


class FailedEntryPoint(MeasuredValue):
    """The exit code and last line of an entry point that started no command."""

    code: int
    words: str = ""

    @property
    def reason(self) -> str:
        """Return why nothing is known of its variables."""
        words = f": {self.words}" if self.words else ""
        return f"the entry point ended with {self.code} and started no other command{words}"


class LogLine(MeasuredValue):
    """A plugin's message through NCCL's logger.

    `level` is ncclDebugLogLevel: 1 version, 2 warning, 3 information.
    """

    level: int
    text: str


class StartedLibrary(MeasuredValue):
    """A library that was started as NCCL starts it, see probes/network.py.

    `error` is why the loader did not open it, `interfaces` the newest of each kind that this NCCL takes, `network` its
    name for NCCL_NET. `result` is what starting or listing returned, None where it was not reached; `devices` are those
    that it counted, `providers` a libfabric's. `shim` says whether CUDA's runtime was stood in for. Where the process
    was ended, `ended` says how, during the step `last`. `complaints` are its last lines on the standard error.
    """

    name: str = ""
    path: str = ""
    error: str = ""
    interfaces: dict[str, int] = Field(default_factory=dict)
    network: str = ""
    result: int | None = None
    devices: int | None = None
    version: str = ""
    providers: list[str] = Field(default_factory=list)
    opened: dict[str, str] = Field(default_factory=dict)
    log: list[LogLine] = Field(default_factory=list)
    mapped: list[str] = Field(default_factory=list)
    shim: str = ""
    last: str = ""
    ended: str = ""
    complaints: list[str] = Field(default_factory=list)


class StartedNetwork(MeasuredValue):
    """The start of NCCL's plugins in its order, of libfabric and of libibverbs."""

    plugins: list[StartedLibrary]
    libfabric: StartedLibrary
    verbs: StartedLibrary
    gpu: bool  # whether the machine has one, whose driver answers in place of the shim


class MeasuredLayer(MeasuredValue):
    """A layer: its compressed and unpacked bytes, the folder with most of them, and leftovers."""

    digest: str  # of the uncompressed layer
    bytes: Count
    unpacked: Count
    count: Count
    mostly: str
    leftovers: Leftovers


class Measured(MeasuredValue):
    """Everything measured in one image, pod or host.

    What has no value has its reason in `missing`, by probe. A field with a `Probe` is what the probe of its name
    returns; probes/measure.py has the function. Those of `missing` that are also in `lost` should have had one: the
    measurement was begun and brought nothing to go by. All others had nothing to measure, or were not asked for.
    """

    system: Annotated[System | None, Probe("static", "device", "gpu")] = None
    settings: Annotated[Settings | None, Probe("static")] = None
    tools: Annotated[dict[str, ToolRun] | None, Probe("static", "device")] = None
    packages: Annotated[MeasuredPackages | None, Probe("static", "gpu")] = None
    imports: Annotated[ImportedPackages | None, Probe("static", nothing="there is no package to import")] = None
    contents: Annotated[PackageContents | None, Probe("static")] = None
    tree: Annotated[Tree | None, Probe("static")] = None
    user_files: Annotated[Files | None, Probe()] = None  # the part of it that a changed script changes
    torch: Annotated[ImportedTorch | None, Probe("static", "gpu", nothing="the image has no torch")] = None
    devices: Annotated[Devices | None, Probe("device", "gpu")] = None
    gpus: Annotated[
        MeasuredGpus | None, Probe("gpu", nothing="there is neither torch nor nccl-tests to use GPUs with")
    ] = None
    network: Annotated[StartedNetwork | None, Probe()] = None  # asked for by itself, once the others have answered
    entry: EntryPointChanges | None = None
    ended_entry: FailedEntryPoint | None = None  # in the place of `entry`
    layers: tuple[MeasuredLayer, ...] | None = None
    missing: dict[str, str] = Field(default_factory=dict)
    lost: tuple[str, ...] = ()
    seconds: dict[str, float] = Field(default_factory=dict)


def _probes() -> dict[str, Probe]:
    """Return every probe that travels, by name."""
    fields = Measured.model_fields.items()
    return {name: mark for name, field in fields for mark in field.metadata if isinstance(mark, Probe)}


PROBE_DECLARATIONS = _probes()


def probe_names(*tiers: str) -> tuple[str, ...]:
    """Return the names of the probes that the validators of these tiers read."""
    return tuple(name for name, probe in PROBE_DECLARATIONS.items() if set(probe.tiers) & set(tiers))


def readable(document: dict[str, object]) -> dict[str, object]:
    """Return the document of a Measured without values of another form than here.

    `missing` names each that was left out, with the reason.
    """
    odd = {
        name: problem
        for name in (*PROBE_DECLARATIONS, "entry", "ended_entry", "layers")
        if name in document and (problem := _misfit(name, document[name]))
    }
    missing = document.get("missing")
    reasons = missing if isinstance(missing, dict) else {}
    return {**document, **dict.fromkeys(odd), "missing": {**reasons, **odd}} if odd else document


def _misfit(name: str, value: object) -> str:
    """Return why `value` is nothing that `name` measures here; empty where it is."""
    try:
        Measured.model_validate({name: value})
    except ValidationError as error:
        return f"the report has it in another form: {first_misfit(error)}"
    return ""
