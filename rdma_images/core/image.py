"""Images as planned and as built. Frozen: each step returns a new object."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, TypeVar

Platform = Literal["linux/amd64", "linux/arm64"]

# As the kernel (uname -m), wheels and ELF's readers name them.
MACHINES: Mapping[Platform, str] = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}


def machine_name(platform: str) -> str:
    """Return a platform's machine, "x86_64"; "" for one that no image is built for."""
    name = "/".join(platform.split("/")[:2])
    return next((machine for supported, machine in MACHINES.items() if supported == name), "")


Fabric = Literal["efa", "erdma"]
FABRIC_TITLES = {"efa": "EFA", "erdma": "eRDMA", "ib": "InfiniBand"}  # also of one that no target is for

TOOL = "rdma-images"  # the distribution that this is
LABEL_PREFIX = "io.rdma-images"  # of the names of our own labels
ID_LABEL, TARGET_LABEL = f"{LABEL_PREFIX}.image-id", f"{LABEL_PREFIX}.target"
# Of images that only hold wheel layers, and of those built on them: a build that fails leaves them behind.
LAYERS_LABEL = f"{LABEL_PREFIX}.layers"
PACKAGE_ORIGIN = "package-origin"  # of labels that say where a Python package of no public index is from

TEMPLATE_ONLY = {"written": False}  # metadata of a field of details that is for the templates alone


@dataclass(frozen=True)
class Details:
    """Facts about a component's version that later steps need; components add their fields."""

    program_folders: tuple[str, ...] = field(default=(), kw_only=True)  # to be on the PATH

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the component's image labels beside its version, by the last part of their names."""
        return {}

    @property
    def networks(self) -> tuple[str, ...]:
        """Return the values of NCCL_NET for the component's plugin, the preferred first."""
        return ()

    def text_fields(self) -> dict[str, str]:
        """Return the fields as text by their names in kebab-case: {"net-name": "AWS Libfabric"}.

        plan.json and the build arguments of stand-ins have them, without empty fields and those for templates alone.
        """
        words: dict[str, str] = {}
        for attribute in fields(self):
            value = getattr(self, attribute.name)
            if value not in (None, ()) and attribute.metadata.get("written", True):
                name = attribute.name.rstrip("_").replace("_", "-")
                words[name] = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        return words


D = TypeVar("D", bound=Details)


@dataclass(frozen=True)
class Component:
    """Anything with a version that is in an image, or that decides what is.

    `decided_by` is "matrix", "--set", or the name of the component whose choice implies this one
    (pytorch decides cuda and nccl; efa-installer decides libfabric, rdma-core and aws-ofi-nccl; base decides python).
    """

    name: str
    version: str
    decided_by: str
    details: Details = Details()


@dataclass(frozen=True)
class HostRequirement:
    """A requirement on the host: shown, labelled, never checked at build time."""

    name: str  # "nvidia-driver"
    at_least: str  # "580.65.06"
    reason: str
    source: str


@dataclass(frozen=True)
class RunSetting:
    """A setting of the image's host or job: shown and labelled, never set in the image."""

    name: str  # "devices", "variable.NCCL_SOCKET_IFNAME"
    value: str
    docker: str  # how `docker run` says it, empty where it cannot
    why: str
    source: str


@dataclass(frozen=True)
class Limitation:
    """A limitation of an image that a user may not expect: shown and labelled."""

    name: str  # "torch-compile"
    feature: str
    why: str
    fix: str
    source: str


@dataclass(frozen=True)
class AddedFile:
    """A file or folder of the user's in an image."""

    path: str  # from the folder of matrix.yaml
    destination: str  # in the image
    owner: tuple[int, int]  # numbers of the user and the group
    mode: str = ""  # octal digits, of every file; empty: 0644, or 0755 for what its owner may run


@dataclass(frozen=True)
class AddedUser:
    """A user that an image's processes run as."""

    name: str
    uid: int
    home: str
    keep_setuid: tuple[str, ...] = ()  # programs that stay setuid or setgid


@dataclass(frozen=True)
class Additions:
    """The additions of a target to an image, above its components."""

    files: tuple[AddedFile, ...]
    environment: dict[str, str]
    user: AddedUser | None
    workdir: str
    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...] | None
    labels: dict[str, str]


@dataclass(frozen=True)
class ExistingImage:
    """An image that was not planned here, as it was measured: a fabric can be added to it."""

    ref: str  # "NAME@sha256:…"
    suite: str  # digest of the validators that measured it
    platform: str
    system: str  # "debian13", by its os-release; "" where it has none
    python: str  # "" where there is none, as in the next three
    pytorch: str
    cuda: str
    nccl: str
    fabric: str  # that it is for already; "" for none
    installer: str  # version of the EFA installer that ran in it
    verbs: str  # the libibverbs.so.1 that its loader finds
    verbs_package: str  # the version of the package of libibverbs
    plugins: tuple[str, ...]  # its network and tuner plugins
    loader_folders: tuple[str, ...]  # that hold a library of a fabric, and that the loader knows
    cuda_runtime: str  # the libcudart that its programs use
    environment: dict[str, str]  # PATH, LD_LIBRARY_PATH, and variables of NCCL, libfabric and NVIDIA's runtime
    user: str
    workdir: str
    entrypoint: tuple[str, ...]
    shell: tuple[str, ...]  # of its Dockerfile; empty for the default
    layers: tuple[str, ...]  # digests of the uncompressed layers, lowest first
    failed: dict[str, str]  # checks that fail in it: id -> what was found
    python_path: str = ""  # of the Python that `python` is the version of
    python_packages: dict[str, str] = field(default_factory=dict)  # that it imports: name -> version
    python_requires: dict[str, tuple[str, ...]] = field(default_factory=dict)  # what these require of one another
    nccl_path: str = ""  # the library that `nccl` is the version of
    stand_ins: tuple[str, ...] = ()  # sources that stand-ins replaced in it

    @property
    def digest(self) -> str:
        """Return the digest of its content, "sha256:…"."""
        return self.ref.rpartition("@")[2]


@dataclass(frozen=True)
class ImageChange:
    """The treatment of a part of an image that a fabric is added to, and its reason."""

    kind: Literal["added", "replaced", "kept"]
    part: str
    why: str


@dataclass(frozen=True)
class Onto:
    """The image that a fabric is added to, and how."""

    base: ExistingImage
    changes: tuple[ImageChange, ...]
    environment: dict[str, str]  # set in the place of the base's own
    hidden_folders: tuple[str, ...]  # that the loader is not to search any more
    removed_files: tuple[str, ...]  # plugins in folders that the loader must search


@dataclass(frozen=True)
class SourceBuild:
    """The compilation of a Python package that has no wheel."""

    variables: dict[str, str] = field(default_factory=dict)  # of its build
    memory: int = 4  # GiB of one compiler
    core_hours: int = 0  # of one core, for one architecture; 0 where that is not known to be long
    network: bool = False  # while it compiles; its source is fetched before
    debian_packages: tuple[str, ...] = ()  # for its build alone
    patch: str = ""  # that its source gets, as text
    is_own: bool = False  # whether the target says so: then no wheel of an index may take its place


@dataclass(frozen=True, kw_only=True)
class KnownImage:
    """What jobs and publications know of an image, also of one that was not planned here."""

    id: str  # the folder under build/images/: of a planned image "<target>-<tag>"
    target: str  # of the matrix; for another image "", or the name of its repository
    fabric: Fabric
    platform: Platform
    components: dict[str, Component] = field(default_factory=dict)  # by name, with what the choices imply
    environment: dict[str, str] = field(default_factory=dict)  # variables that are set in the image
    requirements: tuple[HostRequirement, ...] = ()
    run_settings: tuple[RunSetting, ...] = ()
    additions: Additions | None = None  # the user's own work; None for a target that has none

    def version(self, component: str) -> str:
        """Return the version of a component by name; KeyError when the image does not have it."""
        return self.components[component].version

    def details(self, kind: type[D]) -> D:
        """Return the component's details of this type. Raises KeyError where there are none."""
        for component in self.components.values():
            if isinstance(component.details, kind):
                return component.details
        raise KeyError(kind.__name__)


@dataclass(frozen=True, kw_only=True)
class Image(KnownImage):
    """A target with every version picked: all that later steps need to know of it."""

    tag: str  # every version, in the order of the tag grammar
    axes: dict[str, str]  # as chosen: {"base": "debian13", "pytorch": "2.15.0", "nccl": "pytorch", ...}
    python_packages: tuple[str, ...] = ()  # requirements of the target beside torch
    constraints: tuple[str, ...] = ()  # limits for the packages that these bring
    hashes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # sha256 that files allow, by the package's name
    source_packages: tuple[str, ...] = ()  # python packages that have no wheel, and are built on the base
    source_architectures: tuple[str, ...] = ()  # of the CUDA code that they compile: ("sm_80", "sm_90")
    source_builds: dict[str, SourceBuild] = field(default_factory=dict)  # those that are built in a way of their own
    no_deps: dict[str, str] = field(default_factory=dict)  # python packages that bring none, with the reason
    debian_packages: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # what no fact says of this combination, and only its use can show
    limitations: tuple[Limitation, ...] = ()
    toolkit: tuple[str, ...] = ()  # requirements of the wheels that compile a stage, and are not in the image
    template: str = ""  # the file under dockerfiles/targets/, without its ending
    stages: tuple[str, ...] = ()  # beside those of the template and of the components
    checks: tuple[str, ...] = ()  # commands of the user's that must succeed in the image
    secrets: dict[str, str] = field(default_factory=dict)  # of stages, by id: where each is, "env:NAME"
    onto: Onto | None = None  # the image that its fabric is added to; None for one that is built from a distribution
    changes: tuple[str, ...] = ()  # "axis=value", of those that differ from the default row of its target

    @property
    def options(self) -> str:
        """Return the options that choose exactly this image on a command line."""
        words = ["--target", self.target, *(word for change in self.changes for word in ("--set", change))]
        return shlex.join([*words, *(["--onto", self.onto.base.ref] if self.onto else [])])

    @property
    def core_hours(self) -> dict[str, int]:
        """Return the hours of one core that each long compilation takes, by package; of a wheel of one's own none."""
        own = {text.partition(" @ ")[0] for text in self.python_packages if ".whl" in text}
        count, builds = len(self.source_architectures), self.source_builds.items()
        return {name: build.core_hours * count for name, build in builds if build.core_hours and name not in own}


@dataclass(frozen=True)
class BuildRecord:
    """An image that is in an engine."""

    image_id: str
    ref: str  # "rdma-images/<target>:<tag>", with "-rehearsal" at the end of a rehearsal's tag
    digest: str  # of the manifest, "sha256:…": what validate checks and publish pushes
    inputs: str  # digest of all that decides the image's bytes: same inputs, nothing to do
    stand_ins: tuple[str, ...]  # ids of the sources that stand-ins replaced; empty for an image to ship
    finished: str  # ISO 8601, UTC
    seconds: float
    revision: str = ""  # of the sources, as the image's label has it
    builder: dict[str, str] = field(default_factory=dict)  # program -> version, of those that built it
    layers: dict[str, int] = field(default_factory=dict)  # digest -> bytes, of the wheels' layers that it was built on
    layers_at: str = ""  # the repository that has these, "host/name"; empty where no registry was asked
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 of matrix.yaml and of the locks, by path
