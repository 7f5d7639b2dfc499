"""Rules on what surrounds a job: its image, its pod, its launcher, its cluster."""

import re
from collections.abc import Iterator

from rdma_images.core import versions
from rdma_images.jobs.check.foreign_job import JobPart, LocatedText
from rdma_images.jobs.check.rules.rule import CheckContext, RuleFinding, is_placeholder, is_service, node_name, rule

PLUGIN = re.compile(r"aws-efa-k8s-device-plugin:v(?P<version>[0-9.]+)")
MEASUREMENT = re.compile(r"nccl-tests|[a-z_]+_perf\b")
RETRIES = ("OnFailure", "Always", "ExitCode")
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "NODE_RANK", "MACHINE_RANK")
OWN_RANK = re.compile(r"\$\{?SLURM_(?:PROCID|LOCALID|NODEID)\}?")
TRUE = ("true", "yes", "on")  # in YAML 1.1, which SkyPilot reads
TRANSFER_BACKEND = "disaggregation_transfer_backend"
OF_GPUS = ("cuda", "gdr", "rocm", "ze_", "gaudi")  # how names of UCX's transports for memory of GPUs begin
LOOPBACK = re.compile(r"(?:localhost|127\.\d+\.\d+\.\d+|\[?::1\]?)(?::\d+)?")
FILE = re.compile(r"[./].*|.*\.sqsh")  # an image that enroot has imported


@rule("image.tag", "warning", "kubernetes.io, Images: a tag can be moved while pods start")
def image_by_tag(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report an image by tag: nodes can run different bytes, and no evidence belongs to them."""
    if is_service(part) or not context.accelerated:
        return
    for image in (part.image, *part.more_images):
        if image and not is_placeholder(image.text) and not FILE.fullmatch(image.text) and "@sha256:" not in image.text:
            problem = f"{image.text} has no digest: its tag can move while the job starts"
            yield image, problem, "name the image by its digest, @sha256:…"


@rule("restarts.store", "warning", "pytorch/pytorch issue 135712, and torch 2.11 measured: 3 of 12 restarts connected")
def store_of_restarts(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a torchrun that restarts ranks with the store of the attempt before, which holds old addresses."""
    variable = part.environment.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE")
    restarts = part.start.restarts
    if restarts and re.fullmatch("[1-9][0-9]*", restarts.text) and not (variable and variable.text == "1"):
        problem = "torchrun of torch 2.6 to 2.15 keeps its store over a restart: a rank takes an old address and hangs"
        yield restarts, problem, "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"


@rule("rendezvous.address", "error", "pytorch/pytorch issue 76069; SchedMD, srun(1), SLURM_LAUNCH_NODE_IPADDR")
def wrong_rendezvous(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report an address of the first node that is each node's own, or that of the host where srun was called."""
    several = (part.job_nodes or (part.start.nodes and part.start.nodes.number) or 0) > 1
    fix = 'write the first node\'s name: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    if part.kind != "slurm":
        fix = "write the first node's name"
    for word in filter(None, (part.start.first_node, part.environment.get("MASTER_ADDR"))):
        if several and LOOPBACK.fullmatch(word.text):
            yield word, f"{word.text} is each node itself: no node meets the others", fix
        elif "SLURM_LAUNCH_NODE_IPADDR" in word.text and "srun" not in part.settings:
            problem = (
                "SLURM_LAUNCH_NODE_IPADDR is the node where srun is called, as a login node, and not the first one"
            )
            yield word, problem, fix, "warning"


@rule("docker.network", "warning", "Docker, Bridge network driver; deepinsight/insightface issue 1444")
def network_of_docker(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a container for several nodes in docker's own network, whose addresses the other nodes cannot reach."""
    nodes = part.start.nodes.number if part.start.nodes else None
    joins_ray = any(launch.program == "ray" and "address" in launch.options for launch in part.start.launches)
    if ((nodes or 0) > 1 or joins_ray) and (word := part.settings.get("default-network")):
        problem = (
            f"{nodes or 'several'} nodes, and the container is in docker's own network, which the others do not reach"
        )
        yield word, problem, "write network_mode: host" if "compose" in part.settings else "add --network=host"


@rule("rendezvous.rank", "warning", "huggingface/accelerate issue 1645; SchedMD, sbatch(1), SLURM_PROCID")
def rank_before_srun(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a node's rank that the sbatch script's own shell expands: each node then has the rank of the first."""
    backends = (launch.options.get("rdzv_backend") for launch in part.start.launches)
    if any(backend and backend.text != "static" for backend in backends):
        return  # which chooses ranks by itself
    word = part.settings.get("early-rank") or _exported_rank(part)
    if (part.job_nodes or 0) > 1 and word:
        problem = f"the script itself puts its own {word.text} in place, before srun starts: each node gets rank 0"
        yield word, problem, "write srun bash -c '…' in single quotes, or a backslash before the dollar sign"


def _exported_rank(part: JobPart) -> LocatedText | None:
    """Return a rank that an sbatch script exports by its own Slurm variables before srun starts a program."""
    started = [launch for launch in part.start.launches if launch.srun is not None and not launch.on_nodes]
    if part.title != "sbatch script" or not started:
        return None
    exported = started[0].exported
    words = (exported[name] for name in RANK_VARIABLES if name in exported)
    return next((word for word in words if OWN_RANK.fullmatch(word.text)), None)


@rule(
    "launcher.nodes",
    "warning",
    "deepspeedai/DeepSpeed, deepspeed/launcher/runner.py, fetch_hostfile; huggingface/accelerate, issue 2601; "
    "Lightning-AI/pytorch-lightning, issue 8707",
)
def launcher_without_nodes(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a job on several nodes whose launcher names no other node, or whose program nothing starts on them."""
    if part.start.lone_launcher and (part.job_nodes or 0) > 1:
        word = part.start.lone_launcher
        fix = "--num_machines, --num_processes, --machine_rank and --main_process_ip, or --config_file"
        if word.text == "deepspeed":
            fix = "--hostfile with --no_ssh, --node_rank and --master_addr on each node, or --hostfile alone over ssh"
        problem = f"{word.text} is told of no other node: it trains on one node, or on each by itself"
        if word.text in ("python", "torchrun"):
            problem = f"{word.text} runs on the first node alone: nothing in the script starts it on the others"
            yield word, problem, "start it with srun, once for each GPU, or torchrun with srun, once on each node"
            return
        yield word, problem, f"give it {fix}"


@rule("transfer.devices", "warning", "sgl-project/sglang, python/sglang/srt/disaggregation/nixl/conn.py @007ba53")
def devices_of_another_backend(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report devices that are named for Mooncake, where NIXL moves the cache."""
    if part.start.ignored_option:
        problem = f"{part.start.ignored_option.text} is read for Mooncake alone: NIXL's UCX chooses devices by itself"
        yield part.start.ignored_option, problem, "set UCX_NET_DEVICES, as mlx5_0:1, on prefill and decode"


@rule(
    "transfer.transports",
    "warning",
    "openucx/ucx, src/ucp/core/ucp_context.c, UCX_TLS: no other transport is taken than those named; ai-dynamo/nixl",
)
def transports_without_gpus(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a list of UCX's transports in which none moves GPUs' memory, where NIXL moves a cache that is there."""
    word = part.environment.get("UCX_TLS")
    if not word or is_placeholder(word.text) or not re.fullmatch(r"[\w,]+", word.text):
        return
    names = word.text.split(",")
    if "all" in names or any(name.startswith(OF_GPUS) for name in names):
        return
    for launch in part.start.launches:
        connector, backend = (launch.options.get(name) for name in ("kv_transfer_config", TRANSFER_BACKEND))
        is_on_gpu = connector and "Nixl" in connector.text and '"cpu"' not in connector.text
        if is_on_gpu or (backend and backend.text == "nixl"):
            problem = f"UCX_TLS={word.text}: none of these transports moves memory of GPUs, where NIXL finds the cache"
            yield word, problem, "add cuda_copy and cuda_ipc, or remove it"
            return


@rule("shm.host-path", "warning", "kubernetes.io, Pod Security Standards (baseline): no hostPath")
def host_shared_memory(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report the host's /dev/shm: files of one job fill it for the next, and Pod Security refuses it."""
    if word := part.settings.get("host-shm"):
        problem = (
            "/dev/shm is the node's own: jobs share it and leave files in it, and the baseline Pod Security refuses it"
        )
        yield word, problem, "make it an emptyDir with medium: Memory"


@rule("devices.host-path", "warning", "aws-samples/aws-do-eks pull request 63: the same pod with and without it")
def host_devices(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a hostPath of /dev/infiniband: it brings other adapters, too, which hide EFA."""
    if (word := part.settings.get("host-devices")) and context.fabric == "efa":
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
    if part.kind != "docker" or "privileged" in part.settings or not (context.fabric or _asks_for_verbs(part)):
        return
    word = part.image or LocatedText("docker run", part.line)
    mofed = part.environment.get("NVIDIA_MOFED")  # by which NVIDIA's runtime brings the devices
    if "devices" not in part.settings and not (mofed and mofed.text == "enabled"):
        fix = "add devices: [/dev/infiniband]" if "compose" in part.settings else "add --device=/dev/infiniband"
        yield word, "the container gets no RDMA device, and NCCL takes TCP", fix
    elif "memlock" not in part.settings:
        problem = "locked memory stays limited: no queue pair can be created"
        fix = "add ulimits: {memlock: -1}, or cap_add: [IPC_LOCK]"
        yield word, problem, fix if "compose" in part.settings else "add --ulimit memlock=-1:-1, or --cap-add=IPC_LOCK"


def _asks_for_verbs(part: JobPart) -> bool:
    """Return whether a job's variables ask NCCL for InfiniBand or RoCE."""
    values = {name: word.text for name, word in part.environment.items()}
    return (bool(values.get("NCCL_IB_HCA")) or values.get("NCCL_NET") == "IB") and values.get("NCCL_IB_DISABLE") != "1"


@rule("skypilot.internal", "warning", "skypilot-org/skypilot, sky/clouds/aws.py, make_deploy_resources_variables")
def public_addresses(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report SkyPilot's machines on AWS with public addresses, which EC2 gives to one interface alone."""
    tier, cloud = part.settings.get("network_tier"), part.settings.get("infra") or part.settings.get("cloud")
    if part.kind != "skypilot" or not (tier and tier.text == "best" and cloud and cloud.text.startswith("aws")):
        return
    internal = part.settings.get("internal-ips")
    if internal and (internal.text.lower() in TRUE or is_placeholder(internal.text)):
        return
    interfaces = _interfaces(part, context)
    if (part.job_nodes or 0) > 1 and interfaces > 1:
        problem = f"SkyPilot gives a machine with a public address 1 of its {interfaces} EFA interfaces"
        fix = "set aws.use_internal_ips: true, with use_ssm or ssh_proxy_command, in SkyPilot's configuration"
        yield tier, problem, f"{fix}, where it is not there yet"


def _interfaces(part: JobPart, context: CheckContext) -> int:
    """Return the EFA interfaces of a machine: its instance type's, or the fewest of all types with these GPUs.

    0 if unknown.
    """
    if context.node:
        return context.node.interfaces
    gpu = part.settings.get("gpu")
    types = context.tables.instances.types.values()
    return min(
        (
            row.interfaces
            for row in types
            if gpu
            and row.fabric == "efa"
            and row.gpu == gpu.text.partition("-")[0]
            and part.gpus
            and row.gpus == part.gpus.number
        ),
        default=0,
    )


@rule("device-plugin.version", "warning", "aws/sagemaker-hyperpod-cli pull request 282")
def stale_device_plugin(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a device plugin that counts p6-b200's NVLink controllers as EFA: ten instead of eight."""
    if part.image and (match := PLUGIN.search(part.image.text)) and not versions.at_least(match["version"], "0.5.10"):
        problem = f"version {match['version']} counts the NVLink controllers of p6-b200 as EFA: 10 in place of 8"
        yield part.image, problem, "take 0.5.10 or later"


@rule("measurement.retries", "warning", "mpi-operator's runPolicy; a failed run that is repeated hides the failure")
def silent_retries(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a measurement that is retried silently."""
    if not MEASUREMENT.search(
        f"{part.settings['name'].text if 'name' in part.settings else ''} {part.image.text if part.image else ''}"
    ):
        return
    restart, tries = part.settings.get("restart"), part.settings.get("tries")
    if restart and restart.text in RETRIES and not is_service(part):
        yield restart, f"restartPolicy: {restart.text} repeats a measurement that failed", "write restartPolicy: Never"
    if tries and tries.number:
        yield tries, f"backoffLimit: {tries.text} repeats a measurement that failed", "write backoffLimit: 0"


@rule("sagemaker.vpc", "error", "AWS, SageMaker AI: EFA needs security groups that allow all traffic from themselves")
def without_vpc(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report several hosts with EFA and no VPC: their security group does not let the adapters communicate."""
    several = part.nodes if part.nodes and (part.nodes.number or 0) > 1 else None
    if several and part.kind == "sagemaker" and context.fabric == "efa" and "vpc" not in part.settings:
        yield several, f"{several.text} hosts and no VpcConfig: EFA has no security group", "add VpcConfig"


@rule(
    "eksctl.efa",
    "error",
    "eksctl-io/eksctl, pkg/cfn/builder/network_interfaces.go and pkg/apis/eksctl.io/v1alpha5/validation.go",
)
def eksctl_efa(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a node group whose nodes get no adapters, or that eksctl cannot make."""
    if part.kind != "eksctl" or not (part.instance and context.node and context.node.fabric == "efa"):
        return
    enabled, template = part.settings.get("efa-enabled"), part.settings.get("launch-template")
    if not template and (not enabled or enabled.text != "true"):
        yield (
            part.instance,
            f"{node_name(part)} has {context.node.interfaces} EFA, and efaEnabled is not set",
            "write efaEnabled: true",
        )
    if enabled and enabled.text == "true" and context.node.first_card == "ena":
        problem = f"efaEnabled puts EFA on every card, and card 0 of {node_name(part)} takes none"
        yield enabled, problem, "give the node group a launch template, as `invoke cluster` writes it"
    zones = part.settings.get("zones")
    if zones and (zones.number or 0) != 1:
        yield (
            zones,
            "EFA works within one zone, and the node group is not held to one",
            "name one zone in availabilityZones",
        )
    if not part.settings.get("private"):
        problem = "nodes with several network cards get no public address, and privateNetworking is not set"
        yield part.instance, problem, "write privateNetworking: true"
