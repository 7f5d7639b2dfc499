"""Rules on what reaches ranks that other programs start: variables, addresses, shared memory."""

import re
from collections.abc import Iterator

from rdma_images.jobs.check.foreign_job import JobPart, Launch, LocatedText, Severity
from rdma_images.jobs.check.rules.launch import NODE_OPTIONS, node_count
from rdma_images.jobs.check.rules.rule import EFA, ERDMA, CheckContext, RuleFinding, is_placeholder, rule

# What decides how ranks reach each other, and is of no use where mpirun or docker alone reads it.
READ_BY_RANKS = re.compile(r"(?:NCCL|TORCH_NCCL|FI|OFI_NCCL|UCX|GLOO|NVSHMEM)_\w+")
VERBS = re.compile(r"NCCL_IB_(?:HCA|GID_INDEX|TC|SL)")
VIRTUAL_FUNCTION = re.compile(r"sriov|mlnxnics|_vfs?$", re.IGNORECASE)  # resources of the SR-IOV device plugin
RDMA_RESOURCE = re.compile(r"rdma|hca|mlnx|sriov|roce|infiniband|efa|/ib", re.IGNORECASE)
OF_OPERATORS = ("PyTorchJob", "MPIJob", "JobSet", "RayCluster", "RayJob", "RayService", "LeaderWorkerSet")


@rule(
    "environment.passed",
    "warning",
    "open-mpi/ompi, mpirun(1), -x; SchedMD, srun(1), --export; Docker, docker run, --env",
)
def lost_variables(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report variables that are set where the launcher runs, and that the ranks it starts elsewhere do not get."""
    for launch in part.start.launches:
        exported = {name: word for name, word in launch.exported.items() if READ_BY_RANKS.fullmatch(name)}
        if launch.program == "mpirun" and part.title == "MPIJob Launcher":
            exported |= {name: word for name, word in part.environment.items() if READ_BY_RANKS.fullmatch(name)}
        clause, forwarded = _variable_forwarding(part, launch)
        same_forwarder = (
            other.forwarded_variables for other in part.start.launches if other.forwarder == launch.forwarder
        )
        all_forwarded = frozenset().union(*(names for names in same_forwarder if names), forwarded or ())
        missing = {name: word for name, word in exported.items() if forwarded is not None and name not in all_forwarded}
        if not missing:
            continue
        names = ", ".join(list(missing)[:4]) + (" and others" if len(missing) > 4 else "")
        problem = f"{names} {'is' if len(missing) == 1 else 'are'} set here, and {clause}: the ranks do not get it"
        yield next(iter(missing.values())), problem, f"pass {'it' if len(missing) == 1 else 'them'} on"


def _variable_forwarding(part: JobPart, launch: Launch) -> tuple[str, frozenset[str] | None]:
    """Return what passes variables to the ranks of a launch, as a clause, and which; None for all of them."""
    export = launch.srun.get("export") if launch.srun is not None else None
    if export and "$" not in export.text:
        names = export.text.split(",")
        return f"srun has --export={export.text[:60]}", None if "ALL" in names else _names(names)
    default = part.settings.get("export")
    if launch.srun is not None and not export and default and default.text == "NONE":
        return "with #SBATCH --export=NONE srun passes nothing on", frozenset()
    if launch.program == "mpirun" and part.kind == "slurm":
        return "", None  # which srun starts, with all variables
    if launch.program == "mpirun" and not (part.kind == "kubernetes" or _names_hosts(launch)):
        return "", None
    clauses = {
        "mpirun": "mpirun has no -x for it",
        "docker": "docker run has no -e for it",
        "ssh": "ssh does not send it",
    }
    return clauses.get(launch.forwarder, ""), launch.forwarded_variables if launch.forwarder in clauses else None


@rule(
    "environment.clean", "warning", "apptainer/apptainer, apptainer exec(1): --cleanenv, and --containall, which has it"
)
def clean_containers(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a container that takes Slurm's variables from the ranks that srun starts in it."""
    if word := part.settings.get("clean-container"):
        problem = f"{word.text} takes the variables of srun and PMI from the ranks: each is rank 0 of one"
        yield word, problem, "leave -e and --containall out, or pass SLURM_ and PMI variables with --env"


def _names(words: list[str]) -> frozenset[str]:
    return frozenset(word.partition("=")[0] for word in words)


def _names_hosts(launch: Launch) -> bool:
    return any(name in launch.options for name in ("H", "host", "hostfile", "machinefile"))


@rule(
    "rendezvous.services",
    "error",
    "pytorch/pytorch, torch/distributed/run.py: the nodes of a job differ in their rank alone",
)
def nodes_of_one_file(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report containers of one file that are the nodes of one job, with one rank or other counts."""
    for launch in part.start.launches:
        names, nodes = NODE_OPTIONS.get(launch.program), node_count(part, launch)
        rank = launch.options.get(names[1]) if names else None
        if not names or not rank or rank.number is None or nodes < 2:
            continue
        for other in context.siblings:
            is_earlier = (other.file, other.line) < (part.file, part.line)
            if not is_earlier or part.title == "docker run":  # a script's commands are not told apart by container
                continue
            for first in other.start.launches:
                if first.program == launch.program and (first_rank := first.options.get(names[1])):
                    yield from _conflict(part, launch, other, first, first_rank)


def _conflict(
    part: JobPart, launch: Launch, other: JobPart, first: Launch, first_rank: LocatedText
) -> Iterator[RuleFinding]:
    """Yield what two nodes of a job, of which `first` stands earlier, cannot have together."""
    nodes_option, rank_option, address_option, _ = NODE_OPTIONS[launch.program]
    rank, address = launch.options[rank_option], launch.options.get(address_option)
    first_address = first.options.get(address_option)
    is_same_job = address and first_address and address.text == first_address.text
    is_one_file = part.file == other.file
    if not is_one_file and not is_same_job:
        return
    severity: Severity = "error" if is_one_file else "warning"
    location = f"line {other.line}" if is_one_file else other.file
    if first_rank.text == rank.text:
        problem = f"rank {rank.text} is that of {other.title} in {location}, too"
        yield rank, problem, "give each node its own rank", severity
    elif (count := node_count(other, first)) and count != node_count(part, launch):
        problem = f"{launch.options[nodes_option].text} nodes, and {other.title} in {location} is for {count}"
        yield launch.options[nodes_option], problem, "write the same on all nodes", severity


@rule("rendezvous.host-ip", "error", "vllm-project/vllm, vllm/envs.py, VLLM_HOST_IP: the address of this node")
def same_host_address(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a VLLM_HOST_IP that two nodes have, or that no other node reaches."""
    word = part.environment.get("VLLM_HOST_IP")
    if not word or is_placeholder(word.text):
        return
    for other in context.siblings:
        other_word = other.environment.get("VLLM_HOST_IP")
        if other_word and other.line < part.line and other_word.text == word.text and part.kind == "docker":
            yield (
                word,
                f"VLLM_HOST_IP={word.text} is that of {other.title} in line {other.line}, too",
                "write each node's own address",
            )
    if word.text in ("127.0.0.1", "localhost", "0.0.0.0"):
        yield word, f"VLLM_HOST_IP={word.text} is no address that other nodes reach", "write the node's own address"


@rule(
    "shm.small",
    "warning",
    "Docker, docker run, --shm-size: 64 MiB; NVIDIA's NCCL user guide, Troubleshooting, Shared memory",
)
def small_shared_memory(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a container with several GPUs and the default /dev/shm of 64 MiB, or a folder on a disk in its place."""
    gpus = (part.gpus.number if part.gpus else None) or (_ranks_on_node(part) if part.kind == "docker" else None)
    if "disk-shm" in part.settings and (gpus or 0) > 1:
        problem = "/dev/shm is a folder on the node's disk: what ranks share goes through a file system"
        yield part.settings["disk-shm"], problem, "write emptyDir: {medium: Memory}"
    if "default-shm" in part.settings and (gpus or 0) > 1 and not part.title.startswith("Ray"):  # KubeRay mounts one
        word = part.settings["default-shm"]
        fix = "mount an emptyDir with medium: Memory on /dev/shm"
        if part.kind == "docker":
            fix = "add shm_size or ipc: host" if "compose" in part.settings else "add --ipc=host, or --shm-size"
        yield word, f"/dev/shm has 64 MiB for {gpus} GPUs: NCCL and data loaders share memory there", fix


def _ranks_on_node(part: JobPart) -> int | None:
    """Return the most ranks that a command of a container starts on its node, as far as its options say."""
    names = ("tensor_parallel_size", "tp", "tp_size", "nproc_per_node", "num_gpus")
    words = [launch.options[name] for launch in part.start.launches for name in names if name in launch.options]
    if size := part.settings.get("tensor-parallel"):
        words.append(size)
    return max((word.number for word in words if word.number), default=None)


@rule("pod.rdma", "warning", "Mellanox/k8s-rdma-shared-dev-plugin, README: pods ask for its resource, and add IPC_LOCK")
def pods_without_rdma(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report pods for InfiniBand or RoCE without a device of it, or without memory that they may lock."""
    if part.kind != "kubernetes" or not part.gpus or {"privileged", "claims"} & part.settings.keys():
        return
    resources = {name: word for name, word in {**part.requests, **part.limits}.items() if RDMA_RESOURCE.search(name)}
    if word := part.settings.get("host-devices"):
        if not resources:
            problem = (
                "/dev/infiniband is mounted by its path, and the container is not privileged: it may open no device"
            )
            yield word, problem, "ask for the resource of the cluster's RDMA device plugin, as rdma/…"
        return
    verbs = next((word for name, word in part.environment.items() if VERBS.fullmatch(name)), None)
    disabled = part.environment.get("NCCL_IB_DISABLE")
    if verbs and not resources and (part.job_nodes or 0) > 1 and not (disabled and disabled.text == "1"):
        problem = "NCCL_IB_ variables are set, and the pod asks for no RDMA device: NCCL takes TCP"
        yield verbs, problem, "ask for the resource of the cluster's RDMA device plugin, as rdma/…"
    resource = next((word for name, word in resources.items() if name not in (EFA, ERDMA) and "efa" not in name), None)
    if resource and "ipc-lock" not in part.settings:
        problem = "the pod has RDMA devices and no IPC_LOCK: locked memory may be limited, and no queue pair be created"
        yield resource, problem, "add securityContext.capabilities.add: [IPC_LOCK]"


@rule(
    "pod.networks",
    "warning",
    "k8snetworkplumbingwg/sriov-network-device-plugin, README: the pod's annotation names the network of its function",
)
def functions_without_network(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report pods that ask for a function of SR-IOV, and for no network that brings its interface."""
    resource = next((word for name, word in part.limits.items() if VIRTUAL_FUNCTION.search(name)), None)
    host_network = part.settings.get("host-network")
    if part.kind == "kubernetes" and resource and "networks" not in part.settings and not host_network:
        problem = "the pod asks for a function of SR-IOV and has no annotation k8s.v1.cni.cncf.io/networks"
        yield resource, f"{problem}: it gets no interface, and RoCE no GID", "name the network of that resource in it"


@rule(
    "pod.names",
    "warning",
    "kubernetes.io, DNS for Services and Pods: hostNetwork needs dnsPolicy ClusterFirstWithHostNet",
)
def names_on_hosts(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report pods in the host's network that do not resolve the names by which an operator's nodes meet."""
    word, policy = part.settings.get("host-network"), part.settings.get("dns-policy")
    has_names = part.title.startswith(OF_OPERATORS) or "pod-names" in part.settings
    if part.kind != "kubernetes" or not has_names or not word or word.text != "true":
        return
    if not (policy and policy.text in ("ClusterFirstWithHostNet", "None")):
        problem = "hostNetwork without dnsPolicy ClusterFirstWithHostNet: the pods do not resolve each other's names"
        yield word, problem, "write dnsPolicy: ClusterFirstWithHostNet"
