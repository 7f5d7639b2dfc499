"""Rules on the containers that a job runs in: their image, devices, shared memory and network."""

import re
from collections.abc import Iterator

from rdma_images.core import versions
from rdma_images.jobs.check.foreign_job import JobPart, LocatedText, Severity
from rdma_images.jobs.check.rules.rule import EFA, ERDMA, CheckContext, RuleFinding, is_placeholder, is_service, rule

VERBS = re.compile(r"NCCL_IB_(?:HCA|GID_INDEX|TC|SL)")
VIRTUAL_FUNCTION = re.compile(r"sriov|mlnxnics|_vfs?$", re.IGNORECASE)  # resources of the SR-IOV device plugin
RDMA_RESOURCE = re.compile(r"rdma|hca|mlnx|sriov|roce|infiniband|efa|/ib", re.IGNORECASE)
OF_OPERATORS = ("PyTorchJob", "MPIJob", "JobSet", "RayCluster", "RayJob", "RayService", "LeaderWorkerSet")
PLUGIN = re.compile(r"aws-efa-k8s-device-plugin:v(?P<version>[0-9.]+)")
MEASUREMENT = re.compile(r"nccl-tests|[a-z_]+_perf\b")
RETRIES = ("OnFailure", "Always", "ExitCode")
FILE = re.compile(r"[./].*|.*\.sqsh")  # an image that enroot has imported


@rule(
    "shm.small",
    "warning",
    "Docker, docker run, --shm-size: 64 MiB; NVIDIA's NCCL user guide, Troubleshooting, Shared memory",
)
def small_shared_memory(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report several GPUs with the default /dev/shm of 64 MiB, or with one on a disk."""
    gpus = (part.gpus.number if part.gpus else None) or (_ranks_on_node(part) if part.kind == "docker" else None)
    if "disk-shm" in part.traits and (gpus or 0) > 1:
        problem = "/dev/shm is a folder on the node's disk: what ranks share goes through a file system"
        yield part.traits["disk-shm"], problem, "write emptyDir: {medium: Memory}"
    if "default-shm" in part.traits and (gpus or 0) > 1 and not part.title.startswith("Ray"):  # KubeRay mounts one
        word = part.traits["default-shm"]
        fix = "mount an emptyDir with medium: Memory on /dev/shm"
        if part.kind == "docker":
            fix = "add shm_size or ipc: host" if "compose" in part.traits else "add --ipc=host, or --shm-size"
        yield word, f"/dev/shm has 64 MiB for {gpus} GPUs: NCCL and data loaders share memory there", fix


def _ranks_on_node(part: JobPart) -> int | None:
    """Return the most ranks that a container's command starts, by its options."""
    names = ("tensor_parallel_size", "tp", "tp_size", "nproc_per_node", "num_gpus")
    words = [launch.options[name] for launch in part.start.launches for name in names if name in launch.options]
    if size := part.traits.get("tensor-parallel"):
        words.append(size)
    return max((word.number for word in words if word.number), default=None)


@rule("pod.rdma", "warning", "Mellanox/k8s-rdma-shared-dev-plugin, README: pods ask for its resource, and add IPC_LOCK")
def pods_without_rdma(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report pods for InfiniBand or RoCE without a device, or that may not lock memory."""
    if part.kind != "kubernetes" or not part.gpus or {"privileged", "claims"} & part.traits.keys():
        return
    resources = {name: word for name, word in {**part.requests, **part.limits}.items() if RDMA_RESOURCE.search(name)}
    if word := part.traits.get("host-devices"):
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
    if resource and "ipc-lock" not in part.traits:
        problem = "the pod has RDMA devices and no IPC_LOCK: locked memory may be limited, and no queue pair be created"
        yield resource, problem, "add securityContext.capabilities.add: [IPC_LOCK]"


@rule(
    "pod.networks",
    "warning",
    "k8snetworkplumbingwg/sriov-network-device-plugin, README: the pod's annotation names the network of its function",
)
def functions_without_network(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report pods with a function of SR-IOV, and without its network's annotation."""
    resource = next((word for name, word in part.limits.items() if VIRTUAL_FUNCTION.search(name)), None)
    host_network = part.traits.get("host-network")
    if part.kind == "kubernetes" and resource and "networks" not in part.traits and not host_network:
        problem = "the pod asks for a function of SR-IOV and has no annotation k8s.v1.cni.cncf.io/networks"
        yield resource, f"{problem}: it gets no interface, and RoCE no GID", "name the network of that resource in it"


@rule(
    "pod.names",
    "warning",
    "kubernetes.io, DNS for Services and Pods: hostNetwork needs dnsPolicy ClusterFirstWithHostNet",
)
def names_on_hosts(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report pods in the host's network that do not resolve each other's names."""
    word, policy = part.traits.get("host-network"), part.traits.get("dns-policy")
    has_names = part.title.startswith(OF_OPERATORS) or "pod-names" in part.traits
    if part.kind != "kubernetes" or not has_names or not word or word.text != "true":
        return
    if not (policy and policy.text in ("ClusterFirstWithHostNet", "None")):
        problem = "hostNetwork without dnsPolicy ClusterFirstWithHostNet: the pods do not resolve each other's names"
        yield word, problem, "write dnsPolicy: ClusterFirstWithHostNet"


@rule("image.tag", "warning", "kubernetes.io, Images: a tag can be moved while pods start")
def image_by_tag(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report an image by tag: nodes can run different bytes, and no evidence belongs to them."""
    if is_service(part) or not context.accelerated:
        return
    for image in (part.image, *part.more_images):
        if image and not is_placeholder(image.text) and not FILE.fullmatch(image.text) and "@sha256:" not in image.text:
            problem = f"{image.text} has no digest: its tag can move while the job starts"
            yield image, problem, "name the image by its digest, @sha256:…"


@rule("docker.network", "warning", "Docker, Bridge network driver; deepinsight/insightface issue 1444")
def network_of_docker(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a container for several nodes in docker's own network, which none reaches."""
    nodes = part.start.nodes.number if part.start.nodes else None
    joins_ray = any(launch.program == "ray" and "address" in launch.options for launch in part.start.launches)
    if ((nodes or 0) > 1 or joins_ray) and (word := part.traits.get("default-network")):
        problem = (
            f"{nodes or 'several'} nodes, and the container is in docker's own network, which the others do not reach"
        )
        yield word, problem, "write network_mode: host" if "compose" in part.traits else "add --network=host"


@rule("shm.host-path", "warning", "kubernetes.io, Pod Security Standards (baseline): no hostPath")
def host_shared_memory(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report the host's /dev/shm: one job's files fill it, and Pod Security refuses it."""
    if word := part.traits.get("host-shm"):
        problem = (
            "/dev/shm is the node's own: jobs share it and leave files in it, and the baseline Pod Security refuses it"
        )
        yield word, problem, "make it an emptyDir with medium: Memory"


@rule("devices.host-path", "warning", "aws-samples/aws-do-eks pull request 63: the same pod with and without it")
def host_devices(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a hostPath of /dev/infiniband: it brings other adapters, too, which hide EFA."""
    if (word := part.traits.get("host-devices")) and context.fabric == "efa":
        problem = (
            "/dev/infiniband is the node's own: beside other RDMA adapters libfabric finds no EFA, and NCCL takes TCP"
        )
        yield word, problem, "leave it out: the device plugin brings the devices that vpc.amazonaws.com/efa asks for"


@rule(
    "docker.devices",
    "error",
    "Docker's docker run: a container has none of the host's devices and 64 KiB to 8 MiB to lock",
)
def docker_without_devices(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a container for a fabric that lacks its devices, or may not lock memory."""
    nodes = part.start.nodes.number if part.start.nodes and not _chooses_tcp(part) else None
    is_on_several = (nodes or 0) > 1 and len(context.siblings) == 1  # several containers may be the nodes of one host
    is_for_fabric = context.fabric is not None or _asks_for_verbs(part)
    if part.kind != "docker" or "privileged" in part.traits or not (is_for_fabric or is_on_several):
        return
    severity: Severity = "error" if is_for_fabric else "warning"  # several nodes may have TCP alone
    word = part.image or LocatedText("docker run", part.line)
    mofed = part.environment.get("NVIDIA_MOFED")  # by which NVIDIA's runtime brings the devices
    if "devices" not in part.traits and not (mofed and mofed.text == "enabled"):
        fix = "add devices: [/dev/infiniband]" if "compose" in part.traits else "add --device=/dev/infiniband"
        yield word, "the container gets no RDMA device, and NCCL takes TCP", fix, severity
    elif "memlock" not in part.traits:
        problem = "locked memory stays limited: no queue pair can be created"
        option = "add --ulimit memlock=-1:-1, or --cap-add=IPC_LOCK"
        fix = "add ulimits: {memlock: -1}, or cap_add: [IPC_LOCK]" if "compose" in part.traits else option
        yield word, problem, fix, severity


def _chooses_tcp(part: JobPart) -> bool:
    """Return whether a job's variables tell NCCL to use no fabric."""
    values = {name: word.text.lower() for name, word in part.environment.items()}
    return values.get("NCCL_IB_DISABLE") == "1" or values.get("NCCL_NET") == "socket"


def _asks_for_verbs(part: JobPart) -> bool:
    """Return whether a job's variables ask NCCL for InfiniBand or RoCE."""
    values = {name: word.text for name, word in part.environment.items()}
    return (bool(values.get("NCCL_IB_HCA")) or values.get("NCCL_NET") == "IB") and values.get("NCCL_IB_DISABLE") != "1"


@rule("device-plugin.version", "warning", "aws/sagemaker-hyperpod-cli pull request 282")
def stale_device_plugin(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a device plugin that counts p6-b200's NVLink controllers as EFA."""
    if part.image and (match := PLUGIN.search(part.image.text)) and not versions.at_least(match["version"], "0.5.10"):
        problem = f"version {match['version']} counts the NVLink controllers of p6-b200 as EFA: 10 in place of 8"
        yield part.image, problem, "take 0.5.10 or later"


@rule("measurement.retries", "warning", "mpi-operator's runPolicy; a failed run that is repeated hides the failure")
def silent_retries(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a measurement that is retried silently."""
    if not MEASUREMENT.search(
        f"{part.traits['name'].text if 'name' in part.traits else ''} {part.image.text if part.image else ''}"
    ):
        return
    restart, tries = part.traits.get("restart"), part.traits.get("tries")
    if restart and restart.text in RETRIES and not is_service(part):
        yield restart, f"restartPolicy: {restart.text} repeats a measurement that failed", "write restartPolicy: Never"
    if tries and tries.number:
        yield tries, f"backoffLimit: {tries.text} repeats a measurement that failed", "write backoffLimit: 0"
