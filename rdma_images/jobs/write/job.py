"""The request for a job, and the job made of it. The check of jobs that exist uses the same counts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rdma_images.core.image import Fabric
from rdma_images.facts.launchers import RankStarter
from rdma_images.jobs.write.job_settings import JobSettings

if TYPE_CHECKING:
    from rdma_images.jobs.write.jobs_file import RoleRequest


@dataclass(frozen=True)
class JobRequest:
    """A request for a job, as typed."""

    target: str  # empty for an image that no target of the matrix is
    launcher: str
    instance: str
    nodes: int
    gpus: int | None = None  # of each node; None for all
    image: str = ""  # a reference with a digest; empty for the published one
    name: str = ""
    tcp: bool = False  # the same job over TCP, to compare with
    command: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, str] = field(default_factory=dict)  # --set
    settings: JobSettings = field(default_factory=JobSettings)
    preflight: bool = True  # each node is checked before the command
    roles: Mapping[str, "RoleRequest"] = field(default_factory=dict)  # of a server in parts
    model: str = ""  # that a server with prefill, decode and a router serves

    def fields(self) -> Iterator[str]:
        """Yield the names of what is asked for, as facts/launchers.yaml has them."""
        yield from self.settings.fields()
        if self.roles:
            yield "roles"


@dataclass(frozen=True)
class NodeRequest:
    """The resources that the part of a job on one node asks for."""

    gpus: int
    interfaces: int  # EFA, or eRDMA's resource
    hugepages: int  # MiB in pages of 2 MiB
    memory: int  # MiB, without the huge pages


@dataclass(frozen=True)
class JobFolder:
    """A folder beside the job's files that every container of the job sees."""

    name: str  # "code" or "preflight"
    to: str  # in the container
    files: tuple[str, ...]  # their paths below it


@dataclass(frozen=True)
class JobValue:
    """One decision of a job, with its reason and whose word that is."""

    name: str
    value: str
    why: str
    source: str


@dataclass(frozen=True)
class Job:
    """A job with every decision made; the templates read nothing else."""

    name: str
    launcher: str
    target: str
    fabric: Fabric
    architecture: str  # "amd64"
    image: str  # "host/repository@sha256:…"
    instance: str  # as in the scheduler's label
    nodes: int
    rank_starter: RankStarter
    per_node: NodeRequest
    device_count: int  # interfaces on the node
    gpu: str  # the vendor's name of it; empty where that is not known
    gpu_memory: int  # GiB
    command: tuple[str, ...]  # what each rank runs; for torchrun, what follows its own options
    mpirun: str  # the program in the image; empty where torchrun starts the ranks
    environment: Mapping[str, str]  # what the job sets
    image_environment: Mapping[str, str]  # what the image sets, and ssh does not carry over
    docker: tuple[str, ...]  # what `docker run` gives the container
    parameters: Mapping[str, str]
    tcp: bool
    values: tuple[JobValue, ...]
    settings: JobSettings = field(default_factory=JobSettings)
    preflight: str = ""  # the program that checks a node, as words of sh; empty for none
    rank_restarts: int = 0  # how often torchrun or accelerate starts ranks again; 0 where the launcher does
    folders: tuple[JobFolder, ...] = ()
    user: str = ""  # that the image's processes run as; empty for root
    home: str = "/root"  # that user's
    roles: tuple["Job", ...] = ()  # of a server in parts: a job each
    server: str = ""  # the name of the job that this one is a role of
    first_node: int = 0  # of a role, among the server's nodes
    ready: str = ""  # a path that answers 200 once a role serves; empty where an open port says it

    @property
    def digest(self) -> str:
        """Return the digest of the image, "sha256:…"."""
        return self.image.rpartition("@")[2]

    @property
    def ssh_port(self) -> int:
        """Return the port of sshd between ranks: 22 only for root, and not on a host."""
        return 2222 if self.user or self.launcher == "docker" else 22

    @property
    def ranks(self) -> int:
        """Return the processes of the whole job, one a GPU."""
        return sum(role.ranks for role in self.roles) or self.nodes * self.per_node.gpus

    @property
    def role(self) -> str:
        """Return the name of the role that this job is; empty for a job of its own."""
        return self.name.removeprefix(f"{self.server}-") if self.server else ""

    @property
    def urls(self) -> str:
        """Return the variable that has the addresses of a role's servers."""
        return f"{self.role.upper().replace('-', '_')}_URLS"

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables of a rank's environment: the image's, replaced by the job's."""
        return {**self.image_environment, **self.environment}

    @property
    def exported_variables(self) -> tuple[str, ...]:
        """Return mpirun's options for all variables of a rank, secrets included."""
        return tuple(word for name in {**self.variables, **self.settings.secrets} for word in ("-x", name))
