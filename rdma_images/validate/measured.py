"""What the probes returned, checked for its form: an image under test is untrusted input, so is what it prints."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rdma_images.plain import plain

Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class Value(BaseModel):
    """Base of everything measured. Frozen; keys that a newer probe adds are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Leftovers(Value):
    """Files that have no business in an image: path -> why."""

    secret: dict[str, str] = {}
    cache: dict[str, str] = {}
    temporary: dict[str, str] = {}


class LibraryFile(Value):
    """A library's file or link: size in bytes, the link's target, and what tells two names of one file."""

    size: Count
    target: str = ""
    identity: str = ""


class Files(Value):
    """The file tree in short. `sizes` are bytes by place, the largest only."""

    count: Count
    bytes: Count
    libraries: dict[str, LibraryFile]
    sizes: dict[str, Count]
    leftovers: Leftovers
    world_writable: list[str]


class NcclFile(Value):
    """A libnccl: the version in its banner ("2.28.9+cuda13.0") and the plugin ABIs and file names it looks for."""

    error: str = ""
    banner: str = ""
    looks_for: dict[str, list[int]] = {}
    file_names: list[str] = []
    runpath: list[str] = []

    @property
    def version(self) -> str:
        """The banner without the CUDA it was built with."""
        return self.banner.partition("+")[0]

    @property
    def cuda(self) -> str:
        """The CUDA that it was built with, "" where the banner does not say."""
        return self.banner.partition("+cuda")[2]


class PluginFile(Value):
    """A network or tuner plugin: its version if it is an aws-ofi-nccl, the ABIs it exports by kind, what it needs."""

    error: str = ""
    version: str = ""
    exports: dict[str, list[int]] = {}
    needed: list[str] = []


class Resolved(Value):
    """What the loader makes of a name: the path it found, the file behind it, or why not."""

    path: str = ""
    file: str = ""
    error: str = ""


class Closure(Value):
    """Every library a file pulls in, and the names that nothing answers to."""

    libraries: dict[str, str] = {}
    missing: list[str] = []
    error: str = ""


class Libraries(Value):
    """The fabric's libraries. `method` says who resolved the names: the image's loader, or its cache read out."""

    nccl: dict[str, NcclFile]
    plugins: dict[str, PluginFile]
    headers: dict[str, str] = {}
    resolved: dict[str, Resolved]
    closures: dict[str, Closure]
    verbs_looks_for: dict[str, list[str]]
    method: str


class Tree(Value):
    """The tree, and the libraries found in it."""

    files: Files
    libraries: Libraries


class MappedNccl(Value):
    """A libnccl that a process mapped, and what its ncclGetVersion() answered ("" for no answer)."""

    path: str
    version: str


class Torch(Value):
    """What `import torch` brought. `compiled_nccl` is a constant of torch's build, not what is loaded."""

    version: str
    cuda: str | None
    file: str
    compiled_nccl: str
    nccl: list[MappedNccl]
    mapped: list[str]


class Packages(Value):
    """Versions by name: wheels by the folder they are in, Debian's and RPM's packages; "" for no EFA installer."""

    wheels: dict[str, dict[str, str]]
    dpkg: dict[str, str]
    rpm: dict[str, str]
    efa_installer: str = ""


class ToolRun(Value):
    """One command: `path` is "" where there is no such tool, `rc` None where it did not run or did not end."""

    path: str
    rc: int | None
    out: str
    err: str
    timed_out: bool
    seconds: float


class System(Value):
    """The system the probes found themselves in."""

    os: dict[str, str]
    machine: str
    kernel: str
    python: str
    python_path: str
    user: int
    environment: dict[str, str]


class RdmaDevice(Value):
    """An RDMA device: `state` and `p2p` as the kernel writes them, `mtu` 0 where it has no network interface."""

    driver: str
    state: str
    mtu: Count
    p2p: str


class HugePages(Value):
    """Huge pages in all and free, and the bytes of one."""

    total: Count
    free: Count
    bytes: Count


class Devices(Value):
    """What a machine brings to a container. `memlock` is in bytes, None for no limit."""

    instance: str
    vendor: str
    nodes: list[str]
    rdma: dict[str, RdmaDevice]
    efa_domains: list[str]
    memlock: int | None
    huge_pages: HugePages
    compat_mode: str
    modules: list[str]
    nvidia_module: str
    tools: dict[str, ToolRun]


class Row(Value):
    """One size of an all-reduce: bytes, elements that were wrong, bus bandwidth in GB/s."""

    bytes: Count
    wrong: Count
    busbw: float


class Run(Value):
    """An all-reduce: exit codes (None: stopped) and rows by rank, and NCCL's log."""

    codes: list[int | None]
    rows: list[list[Row]]
    log: str


class Gpus(Value):
    """The GPUs that torch sees, and the all-reduces: as NCCL chose, and forced over the network."""

    count: Count
    names: list[str]
    runs: dict[str, Run]


class Layer(Value):
    """A layer: bytes as it is pulled and as it is unpacked, the place that takes most of them, and leftovers."""

    digest: str  # of the uncompressed layer
    bytes: Count
    unpacked: Count
    count: Count
    mostly: str
    leftovers: Leftovers


class Measured(Value):
    """Everything measured in one image, pod or host. What has no value has its reason in `missing`, by probe.

    Those of `missing` that are also in `lost` should have had one: the measurement was begun and brought nothing to go
    by. All others had nothing to measure, or were not asked for.
    """

    tree: Tree | None = None
    torch: Torch | None = None
    packages: Packages | None = None
    tools: dict[str, ToolRun] | None = None
    system: System | None = None
    devices: Devices | None = None
    gpus: Gpus | None = None
    layers: tuple[Layer, ...] | None = None
    missing: dict[str, str] = Field(default_factory=dict)
    lost: tuple[str, ...] = ()
    seconds: dict[str, float] = Field(default_factory=dict)


class Answer(Value):
    """What a probe came back with: a value, or why there is none. `seconds` is how long it took."""

    value: Any = None
    error: str = ""
    seconds: float = Field(default=0.0, ge=0)


ANSWERS = TypeAdapter(dict[str, Answer])
# What it means that a probe found nothing to measure.
NOTHING = {"torch": "the image has no torch", "gpus": "there is no torch to see GPUs with"}


def measured(text: bytes, asked: Iterable[str]) -> Measured:
    """The answers of the probes `asked`, which `text` has as JSON: {probe: {"value", "error", "seconds"}}.

    Nothing in `text` raises: an answer that is not there, or has another form, is lost, with the reason.
    """
    try:
        answers = ANSWERS.validate_json(text)
    except ValidationError as error:
        return lost(asked, f"what the probes printed in the image is cut short or damaged: {_first(error)}")
    found = Measured(seconds={name: answer.seconds for name, answer in answers.items()})
    for name in asked:
        found = _with(found, name, answers.get(name, Answer(error="the image's answer leaves it out")))
    return found


def lost(names: Iterable[str], why: str, found: Measured | None = None) -> Measured:
    """`found` without what `names` would have measured, which is lost for the reason `why`."""
    found, names = found or Measured(), tuple(names)
    missing = {**found.missing, **dict.fromkeys(names, plain(why))}
    return found.model_copy(update={"missing": missing, "lost": (*found.lost, *names)})


def _with(found: Measured, name: str, answer: Answer) -> Measured:
    """`found` with what the probe `name` answered."""
    if answer.value is None and not answer.error and name in NOTHING:
        return found.model_copy(update={"missing": {**found.missing, name: NOTHING[name]}})
    if answer.value is None:
        return lost((name,), answer.error or f"{name} has no value", found)
    try:
        value = getattr(Measured.model_validate({name: answer.value}), name)
    except ValidationError as error:
        return lost((name,), f"the image's answer does not have the expected form at {_first(error)}", found)
    return found.model_copy(update={name: value})


def _first(error: ValidationError) -> str:
    """Where the first thing is that does not fit, and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'its start'}: {first['msg']}"
