"""Measurements of the probes, checked for their form: what an image under test prints is untrusted."""

from typing import Annotated

from pydantic import Field

from rdma_images.inspection.machine import Devices, MeasuredGpus
from rdma_images.inspection.values import Count, MeasuredValue, Probe, ToolRun


class Leftovers(MeasuredValue):
    """Files that have no business in an image: path -> why."""

    secret: dict[str, str] = Field(default_factory=dict)
    cache: dict[str, str] = Field(default_factory=dict)


class LibraryFile(MeasuredValue):
    """A library's file or link: its size in bytes and the link's target.

    `identity` is the same for all names of a file. `condition` is why it can be no library of this machine, see
    probes/conditions.py.
    """

    size: Count
    target: str = ""
    identity: str = ""
    condition: str = ""


class Files(MeasuredValue):
    """The file tree in short."""

    count: Count
    bytes: Count
    library_files: dict[str, LibraryFile]


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

    `version` is "" if this is no release of aws-ofi-nccl. `aws_platform` is whether an aws-ofi-nccl was built with the
    AWS platform, None for another plugin. `project` is whose plugin it is by its own strings, "" where they do not say.
    `opens` are libraries that it opens by their names.
    """

    error: str = ""
    project: str = ""
    version: str = ""
    aws_platform: bool | None = None
    exports: dict[str, list[int]] = Field(default_factory=dict)
    needed: list[str] = Field(default_factory=list)
    opens: list[str] = Field(default_factory=list)


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
    architectures that each program of nccl-tests holds code for,
    `libfabric` the version that each libfabric says of itself, "" where it does not, and `opens` what a libfabric opens
    by its name and does not find.
    """

    nccl: dict[str, NcclFile]
    plugins: dict[str, PluginFile]
    gpu_code: dict[str, list[str]] = Field(default_factory=dict)
    resolved: dict[str, ResolvedLibrary]
    closures: dict[str, Closure]
    verbs_looks_for: dict[str, list[str]]
    libfabric: dict[str, str] = Field(default_factory=dict)
    opens: dict[str, list[str]] = Field(default_factory=dict)
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

    @property
    def installed(self) -> list[tuple[str, str]]:
        """Return each wheel and its version, once for every folder that it is in."""
        return [wheel for folder in self.wheels.values() for wheel in folder.items()]


class WheelContents(MeasuredValue):
    """A wheel's licences, supplier and bundled libraries."""

    license: str = ""  # License-Expression
    license_field: str = ""  # License, which may be anything
    classifiers: list[str] = Field(default_factory=list)
    supplier: str = ""
    requires: list[str] = Field(default_factory=list)  # lines of Requires-Dist, without those of extras
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
    """The system the probes found themselves in; `python_folders` are those that its Python imports from, in order."""

    os: dict[str, str]
    machine: str
    kernel: str
    python: str
    python_path: str
    python_folders: list[str] = Field(default_factory=list)
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


class Settings(MeasuredValue):
    """What files set beside the environment, and the missing paths in variables.

    `without_path` is what the loader would find without LD_LIBRARY_PATH, by name; empty where that is not set.
    """

    assigned: list[AssignedVariable]
    absent: list[str]
    without_path: dict[str, str] = Field(default_factory=dict)
    loader_folders: dict[str, str] = Field(default_factory=dict)  # that ldconfig's files name, with the file


class EntryPointChanges(MeasuredValue):
    """The variables of ours that the entry point gives its process, or removes."""

    given: dict[str, str] = Field(default_factory=dict)
    removed: list[str] = Field(default_factory=list)


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
    that it counted, `providers` a libfabric's. `cuda_stub` says whether a stub was CUDA's runtime. Where the process
    was ended, `end_reason` says how, during `last_step`. `stderr_tail` is its last lines on the standard error.
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
    cuda_stub: str = ""
    last_step: str = ""
    end_reason: str = ""
    stderr_tail: list[str] = Field(default_factory=list)


class StartedNetwork(MeasuredValue):
    """The start of NCCL's plugins in its order, of libfabric and of libibverbs."""

    plugins: list[StartedLibrary]
    libfabric: StartedLibrary
    verbs: StartedLibrary
    has_gpu: bool  # whether the machine has one, whose driver answers in place of the shim


class MeasuredLayer(MeasuredValue):
    """A layer: its compressed and unpacked bytes, the folder with most of them, and leftovers."""

    digest: str  # of the uncompressed layer
    bytes: Count
    unpacked: Count
    file_count: Count
    largest_folder: str
    leftovers: Leftovers


class Measured(MeasuredValue):
    """Everything measured in one image, pod or host.

    A field with a `Probe` is what the probe of its name returns; probes/measure.py has the function. `missing` says by
    probe why there is no value. Probes in `failed` began and brought nothing to go by; those in `timed_out` took too
    long, and may have a value another time; all others had nothing to measure, or were not asked for.
    """

    system: Annotated[System | None, Probe("static", "device", "gpu")] = None
    settings: Annotated[Settings | None, Probe("static")] = None
    tools: Annotated[dict[str, ToolRun] | None, Probe("static", "device")] = None
    packages: Annotated[MeasuredPackages | None, Probe("static", "gpu")] = None
    contents: Annotated[PackageContents | None, Probe("static")] = None
    tree: Annotated[Tree | None, Probe("static")] = None
    torch: Annotated[ImportedTorch | None, Probe("static", "gpu", nothing="the image has no torch")] = None
    devices: Annotated[Devices | None, Probe("device", "gpu")] = None
    gpus: Annotated[MeasuredGpus | None, Probe("gpu", nothing="there is no NCCL to use GPUs with")] = None
    network: Annotated[StartedNetwork | None, Probe()] = None  # asked for by itself, once the others have answered
    entry: EntryPointChanges | None = None
    layers: tuple[MeasuredLayer, ...] | None = None
    missing: dict[str, str] = Field(default_factory=dict)
    failed: tuple[str, ...] = ()
    timed_out: tuple[str, ...] = ()
    seconds: dict[str, float] = Field(default_factory=dict)


def _probes() -> dict[str, Probe]:
    """Return every probe that travels, by name."""
    fields = Measured.model_fields.items()
    return {name: mark for name, field in fields for mark in field.metadata if isinstance(mark, Probe)}


PROBE_DECLARATIONS = _probes()


def probe_names(*tiers: str) -> tuple[str, ...]:
    """Return the names of the probes that the validators of these tiers read."""
    return tuple(name for name, probe in PROBE_DECLARATIONS.items() if set(probe.tiers) & set(tiers))
