"""The rules: on what each node gives or gets, on variables, and on the settings of transfers of KV caches."""

import re
from collections.abc import Iterator

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts.environment import TransferSetting
from rdma_images.jobs.check.node_group import LocatedText, NodeGroup, Severity
from rdma_images.jobs.check.rule import EFA, ERDMA, HUGEPAGES, CheckContext, FileProblem, is_placeholder, rule

UNITS = {
    **{"": 1 / 2**20, "Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 2**20},
    **{"k": 1e3 / 2**20, "M": 1e6 / 2**20, "G": 1e9 / 2**20, "T": 1e12 / 2**20},
}
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([KMGT]i|[kMGT])?")
IMAGE_FILE = re.compile(r"[./].*|.*\.sqsh")  # that enroot has imported
PLUGINS = ("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN")
MAX_NAMES = 100  # of a file that are compared with those that are known


@rule("gpus.node", "error", "EC2's DescribeInstanceTypes and Alibaba Cloud's ECS guide, as in facts/instances.yaml")
def too_many_gpus(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report more GPUs than the node has, or a negative number: no node fits, and the job waits for ever."""
    requested = group.gpus.number if group.gpus else None
    if context.node and group.gpus and requested is not None and not 0 <= requested <= context.node.gpus:
        message = f"{requested} GPUs, and {group.node_name} has {context.node.gpus}"
        yield FileProblem(group.gpus, message, f"ask for {context.node.gpus} at most")


@rule(
    "efa.count",
    "error",
    "EC2's DescribeInstanceTypes, as in facts/instances.yaml; skypilot issue 8391, aicr issue 2275",
)
def wrong_efa_count(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report fewer EFA than the GPUs' share of the node, or more than any node has."""
    if group.kind == "slurm" or not (context.node and context.node.fabric == "efa" and group.gpus):
        return
    gpus, requested = group.gpus.number, group.amount(EFA)
    if gpus is None or not 0 < gpus <= context.node.gpus:
        return
    share = context.node.adapters_for(gpus)
    if requested is None:
        # DRA's claims, a privileged container and SkyPilot's tier give adapters in another way; one node needs none.
        is_in_pods = group.kind == "kubernetes" or group.network != "host"
        has_others = group.pod.has_claims or group.pod.is_privileged or group.network_tier
        if is_in_pods and group.node_count > 1 and not group.pod.is_service and not has_others:
            message = f"no {EFA}: NCCL finds no adapter and goes over TCP, or does not start"
            fix = f"ask for {EFA}: {share} in requests and limits"
            yield FileProblem(group.gpus, message, fix, "error" if context.uses_fabric else "warning")
    elif (number := requested.number) is not None and (number < share or number > context.node.interfaces):
        capacity = f"{group.node_name} has {context.node.interfaces} for {context.node.gpus} GPUs"
        idle = "no node has that many" if number > context.node.interfaces else f"{share - number} of {share} lie idle"
        idle = "no pod is made" if number < 0 else idle
        yield FileProblem(requested, f"{EFA}: {number} for {gpus} GPUs: {capacity}, so {idle}", f"ask for {share}")


@rule("trainjob.resources", "error", "kubeflow/trainer v2.2.1, pkg/runtime/core/trainingruntime.go:182")
def erased_efa(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report resourcesPerNode without adapters: Trainer up to 2.2 erases the runtime's."""
    shows_fabric = context.node or context.uses_fabric
    if group.title == "TrainJob" and group.gpus and shows_fabric and not (group.amount(EFA) or group.amount(ERDMA)):
        message = (
            "resourcesPerNode has GPUs and no adapters: up to Trainer 2.2 it replaces the runtime's, which are lost"
        )
        yield FileProblem(
            group.gpus, message, f"write {EFA} (or {ERDMA}) and the huge pages into resourcesPerNode as well"
        )


@rule("skypilot.efa", "error", "skypilot-org/skypilot, sky/clouds/aws.py, make_deploy_resources_variables")
def machines_without_efa(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report SkyPilot's machines on AWS whose network tier brings no EFA interface."""
    tier, cloud = group.network_tier, group.cloud
    if not cloud or not cloud.text.lower().startswith("aws") or group.node_count < 2:
        return
    interfaces = context.node.interfaces if context.node else _fewest_interfaces(group, context)
    if not interfaces or (tier and (tier.text.lower() == "best" or is_placeholder(tier.text))):
        return
    message = f"without network_tier: best a machine gets none of its {interfaces} EFA interfaces: NCCL takes TCP"
    yield FileProblem(tier or cloud, message, "write network_tier: best into resources")


def _fewest_interfaces(group: NodeGroup, context: CheckContext) -> int:
    """Return the fewest EFA interfaces of the types with a machine's GPUs; 0 if a type with one would fit, too."""
    gpu, gpus = group.gpu.partition("-")[0], group.gpus.number if group.gpus else None
    types = [row for row in context.instances.types.values() if row.fabric == "efa" and row.gpu == gpu]
    fewest = min((row.interfaces for row in types if row.gpus == gpus), default=0)
    return fewest if fewest > 1 else 0


@rule("hugepages.node", "error", "facts/instances.yaml: what a node has as delivered")
def too_many_hugepages(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report more huge pages than a node has: no node fits."""
    requested = group.amount(HUGEPAGES)
    if requested and context.fabric and (size := _mebibytes(requested.text)) is not None:
        most = context.instances.nodes[context.fabric].hugepages
        if size > most:
            message = f"{HUGEPAGES}: {requested.text[:30]}, and a node has {most} MiB as delivered"
            yield FileProblem(requested, message, "ask for 5120Mi, or preallocate more pages on the nodes")


def _mebibytes(quantity: str) -> float | None:
    """Return a Kubernetes quantity in MiB; None if it cannot be parsed."""
    match = QUANTITY.fullmatch(quantity)
    return float(match[1]) * UNITS[match[2] or ""] if match else None


@rule("pod.rdma", "warning", "facts/running.yaml: IPC_LOCK beside the resource of the eRDMA devices, or privileged")
def limited_memory(group: NodeGroup, _: CheckContext) -> Iterator[FileProblem]:
    """Report pods with eRDMA devices that may not lock memory."""
    devices, is_described = group.amount(ERDMA), group.kind == "kubernetes" and group.network
    if devices and is_described and not group.pod.is_privileged and not group.pod.may_lock_memory:
        message = f"the pod has {ERDMA} and no IPC_LOCK: locked memory may be limited, and no queue pair be created"
        yield FileProblem(devices, message, "add securityContext.capabilities.add: [IPC_LOCK]")


@rule("devices.host-path", "warning", "aws-samples/aws-do-eks pull request 63: the same pod with and without it")
def host_devices(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report a hostPath of /dev/infiniband: it brings other adapters, too, which hide EFA."""
    if group.pod.host_devices and context.fabric == "efa":
        message = (
            "/dev/infiniband is the node's own: beside other RDMA adapters libfabric finds no EFA, and NCCL takes TCP"
        )
        fix = f"leave it out: the device plugin brings the devices that {EFA} asks for"
        yield FileProblem(group.pod.host_devices, message, fix)


@rule("image.tag", "warning", "kubernetes.io, Images: a tag can be moved while pods start")
def image_by_tag(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report an image by tag: nodes can run different bytes, and no evidence belongs to them."""
    if group.pod.is_service or not context.requests_gpus:
        return
    for image in group.images:
        if not is_placeholder(image.text) and not IMAGE_FILE.fullmatch(image.text) and "@sha256:" not in image.text:
            message = f"{image.text} has no digest: its tag can move while the job starts"
            yield FileProblem(image, message, "name the image by its digest, @sha256:…")


@rule("plugin.missing", "warning", "NVIDIA/nccl, src/plugin/plugin_open.cc; awsome-distributed-ai pull request 878")
def plugin_by_path(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report a plugin by a path that no volume brings: that of one build of an image."""
    for variable in PLUGINS:
        if word := _plugin_path(group, context, variable):
            message = (
                f"{variable}={word.text}: the path is that of one build of the plugin, and nothing shows that the "
                "image has it there; without the file NCCL goes on without the plugin"
            )
            yield FileProblem(word, message, "remove it: NCCL finds the image's own plugin by itself")


def _plugin_path(group: NodeGroup, context: CheckContext, variable: str) -> LocatedText | None:
    """Return the value of a plugin's variable that is a path in a known image, and in no volume."""
    word = group.environment.get(variable) if variable in PLUGINS and group.image else None
    if not word or not word.text.startswith("/") or any(map(is_placeholder, (word.text, group.images[0].text))):
        return None
    is_mounted = word.text.startswith(tuple(f"{mount.rstrip('/')}/" for mount in context.mounts))
    return None if is_mounted else word


@rule("environment.harmful", "error", "facts/environment.yaml")
def harmful_variables(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report a variable that takes the network away or breaks it."""
    values = {name: word.text for name, word in group.environment.items() if not is_placeholder(word.text)}
    if values.get("NCCL_NET", "").lower() == "socket":  # tcp.chosen reports it; NCCL then asks no provider
        values.pop("FI_PROVIDER", None)
    command = command_text(group) if values else ""
    for row in context.environment.variables.values():
        is_of_jobs = row.name in values and row.effect == "harmful" and not row.image_only
        if not is_of_jobs or not row.applies_to(values, context.fabric, context.versions, command):
            continue
        word = group.environment[row.name]
        conditions = row.conditions(word.text, group.network, context.node, context.versions)
        is_path = "nccl" not in context.versions and _plugin_path(group, context, row.name)
        if conditions is None or (conditions and is_path):  # plugin.missing reports a path
            continue
        reason = ": ".join([*conditions, f"{row.why} [{context.environment.cite(row)}]"])
        severity: Severity = "warning" if conditions or row.uncertain else "error"
        yield FileProblem(word, f"{row.name}={word.text}: {reason}", "remove it", severity)


@rule("tcp.chosen", "warning", "NVIDIA/nccl, NCCL_NET: no other network than the one named is taken")
def chosen_sockets(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report TCP on nodes with a fabric: right for a comparison, and for nothing else."""
    word = group.environment.get("NCCL_NET")
    is_in_pyxis = group.kind == "slurm" and group.image is not None
    if not word or word.text.lower() != "socket" or not (context.fabric or is_in_pyxis):
        return
    message = f"NCCL_NET={word.text}: NCCL uses TCP sockets alone, and leaves the fabric"
    message += f" ({context.fabric})" if context.fabric else ""
    fix = "remove it, unless this job measures TCP to compare with"
    if is_in_pyxis and "NCCL_NET" not in group.container_env:
        message += "; where the image sets NCCL_NET, its own value wins"
        fix += ", which has to name it in srun's --container-env"
    yield FileProblem(word, message, fix)


@rule(
    "environment.misspelt",
    "warning",
    "facts/known-variables.yaml, read from the sources of NCCL, aws-ofi-nccl, libfabric and rdma-core",
)
def misspelt_variables(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report a variable that nothing reads, and whose name is nearly one that is read."""
    for name, word in list(group.environment.items())[:MAX_NAMES]:
        if near := context.variables.closest_name(name):
            message = f"{name} is read by none of NCCL, aws-ofi-nccl, libfabric and rdma-core"
            yield FileProblem(word, message, f"write {near} if that is meant, else remove it")


@rule("environment.library-path", "warning", "aws/aws-ofi-nccl, INSTALL.md")
def library_path(group: NodeGroup, _: CheckContext) -> Iterator[FileProblem]:
    """Report LD_LIBRARY_PATH: the job's wins over the image's own order of libraries."""
    word = group.environment.get("LD_LIBRARY_PATH")
    if word and word.text and group.image:
        message = "LD_LIBRARY_PATH comes before the image's own libraries: another NCCL or plugin may be loaded"
        yield FileProblem(word, message, "remove it")


@rule("transfer.fabric", "error", "facts/environment.yaml")
def transfers_without_fabric(group: NodeGroup, context: CheckContext) -> Iterator[FileProblem]:
    """Report a server whose transfers, by Mooncake or NIXL, lack the setting by which they reach the fabric."""
    command = command_text(group)
    for row in context.environment.transfers.values() if command and context.fabric else ():
        match = re.search(row.command, command) if row.fabric == context.fabric else None
        if not match:
            continue
        given = _given_value(group, command, row)
        if given and (given.lower() == row.value.lower() or is_placeholder(given)):
            continue
        setting = f"{row.name}={row.value}" if row.name.isupper() else f'"{row.name}": {row.value} in its configuration'
        state = f"{row.name} is {given}" if given else f"{row.name} is not set"
        severity: Severity = (
            "error" if row.effect == "harmful" and (given or not group.pod.has_more_environment) else "warning"
        )
        reason = f"{row.why} [{context.environment.cite(row)}]"
        message = f"{match[0]} on {FABRIC_TITLES[row.fabric]}, and {state}: {reason}"
        line = next((word.line for word in group.command if match[0] in word.text), group.line)
        yield FileProblem(LocatedText(match[0], line), message, f"set {setting}", severity)


def command_text(group: NodeGroup) -> str:
    """Return the words of a group's command as one text."""
    return " ".join(word.text for word in group.command)


def _given_value(group: NodeGroup, command: str, row: TransferSetting) -> str:
    """Return what a variable, or a key in the command's JSON, is set to; "" where it is not."""
    if word := group.environment.get(row.name):
        return word.text or "$()"  # from elsewhere
    match = re.search(rf"\b{re.escape(row.name)}\b[\"'\\]*\s*[:=][\s\"'\\\[]*(?P<value>[\w$<{{]+)", command)
    return match["value"] if match else ""
