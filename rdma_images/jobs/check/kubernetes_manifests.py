"""Read the pods that Kubernetes manifests of any operator ask for."""

from collections.abc import Iterator

from rdma_images.core.errors import RefusedError
from rdma_images.jobs.check import sbatch_scripts
from rdma_images.jobs.check.node_group import LocatedText, NodeGroup, Pod
from rdma_images.jobs.check.yaml_node import YamlNode

INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
MEMORY_CAPABILITIES = {"IPC_LOCK", "CAP_IPC_LOCK", "ALL"}
SERVICES = ("DaemonSet", "Deployment")
ROLES = ("Launcher", "Worker", "Master", "Chief")
GPU = "nvidia.com/gpu"
MAX_PODS = 500  # of one file


def read_pods(top: YamlNode) -> Iterator[NodeGroup]:
    """Yield the groups of an object: its pods, wherever its operator keeps them, or a TrainJob's nodes.

    Raises:
        RefusedError: for more pods than a job has.
    """
    if top.lookup("kind").value == "TrainJob":
        trainer = top.lookup("spec", "trainer")
        resources = trainer.lookup("resourcesPerNode")
        yield _node_group(top, "TrainJob", trainer, resources, selected_instance(top), trainer.lookup("numNodes").word)
        return
    for number, pod in enumerate(_pod_specifications(top)):
        if number == MAX_PODS:
            raise RefusedError(f"{top.document.name}:{pod.line}: more than {MAX_PODS} pods\ncheck a job by itself")
        container = _main_container(pod.lookup("containers").items)
        role = next((str(step) for step in pod.path if step in ROLES), "")
        title, resources = f"{top.lookup('kind').text} {role}".strip(), container.lookup("resources")
        yield _node_group(top, title, container, resources, selected_instance(pod), _replicas(top, pod), pod)


def selected_instance(node: YamlNode) -> LocatedText | None:
    """Return the first instance type that a selector or an affinity in a node of YAML asks for, and no other type."""
    for label in INSTANCE_LABELS:
        if label in node.mapping:
            return node.lookup(label).word
    values = node.lookup("values").items
    if node.lookup("key").value in INSTANCE_LABELS and node.lookup("operator").value == "In" and len(values) == 1:
        return values[0].word
    return next((word for child in node.children if (word := selected_instance(child))), None)


def _pod_specifications(node: YamlNode) -> Iterator[YamlNode]:
    """Yield every pod's specification in a document, wherever an operator keeps it."""
    if any(container.mapping for container in node.lookup("containers").items):
        yield node
        return
    for child in node.children:
        yield from _pod_specifications(child)


def _node_group(
    top: YamlNode,
    title: str,
    container: YamlNode,
    resources: YamlNode,
    instance: LocatedText | None,
    nodes: LocatedText | None,
    pod: YamlNode | None = None,
) -> NodeGroup:
    """Return the group of a container in a pod; without a `pod`, in one that a runtime describes elsewhere."""
    requested, limits = resources.lookup("requests").words, resources.lookup("limits").words
    command, image = _command(container), container.lookup("image").word
    is_on_host = pod is not None and pod.lookup("hostNetwork").value == "true"
    return NodeGroup(
        file=top.document.name,
        line=container.line,
        kind="kubernetes",
        title=title,
        instance=instance,
        nodes=nodes,
        gpus=requested.get(GPU) or limits.get(GPU),
        images=(image,) if image else (),
        requests=requested,
        limits=limits,
        environment={**_variables(container), **sbatch_scripts.read_settings(command).variables},
        command=command,
        network=None if pod is None else "host" if is_on_host else "pod",
        pod=Pod() if pod is None else _pod_settings(top, pod, container),
    )


def _pod_settings(top: YamlNode, pod: YamlNode, container: YamlNode) -> Pod:
    security = container.lookup("securityContext")
    capabilities = {item.text for item in security.lookup("capabilities", "add").items}
    volumes = pod.lookup("volumes").items
    host_devices = [row for row in volumes if row.lookup("hostPath", "path").text.rstrip("/") == "/dev/infiniband"]
    return Pod(
        is_service=top.lookup("kind").value in SERVICES,
        is_privileged=security.lookup("privileged").value == "true",
        may_lock_memory=bool(MEMORY_CAPABILITIES & capabilities),
        has_claims=bool(pod.lookup("resourceClaims").value),
        has_more_environment=bool(container.lookup("envFrom").items),
        host_devices=LocatedText("/dev/infiniband", host_devices[0].line) if host_devices else None,
        mounts=tuple(mount.lookup("mountPath").text for mount in container.lookup("volumeMounts").items),
    )


def _main_container(containers: list[YamlNode]) -> YamlNode:
    """Return the container that the job runs in: the one that asks for GPUs, else the first."""
    described = [container for container in containers if container.mapping]
    for container in described:
        if any(GPU in container.lookup("resources", amounts).mapping for amounts in ("requests", "limits")):
            return container
    return described[0]


def _replicas(top: YamlNode, pod: YamlNode) -> LocatedText | None:
    """Return the number of pods of a job: a PyTorchJob's master and workers, or the number nearest to the pod.

    For a LeaderWorkerSet, this is the size of each replica.
    """
    roles = top.lookup("spec", "pytorchReplicaSpecs")
    if roles.mapping:
        counts = [(roles.lookup(role, "replicas").word or LocatedText("1", 1)).number for role in roles.mapping]
        return None if None in counts else LocatedText(str(sum(filter(None, counts))), roles.line)
    keys = ("size",) if top.lookup("kind").value == "LeaderWorkerSet" else ("replicas", "parallelism", "numNodes")
    for ancestor in (top.lookup(*pod.path[:depth]) for depth in range(len(pod.path), 0, -1)):
        if key := next((key for key in keys if key in ancestor.mapping), None):
            return ancestor.lookup(key).word
    return None


def _variables(container: YamlNode) -> dict[str, LocatedText]:
    """Return the variables that a container sets, with an open value where it comes from elsewhere."""
    variables: dict[str, LocatedText] = {}
    for entry in container.lookup("env").items:
        value = "$(valueFrom)" if "valueFrom" in entry.mapping else entry.lookup("value").text
        variables[entry.lookup("name").text] = LocatedText(value, entry.line)
    return variables


def _command(container: YamlNode) -> tuple[LocatedText, ...]:
    """Return the words of a container's command and arguments, and the lines of a shell's text among them."""
    words: list[LocatedText] = []
    for node in (*container.lookup("command").items, *container.lookup("args").items):
        if isinstance(node.value, str) and len(words) < sbatch_scripts.MAX_LINES:
            words += sbatch_scripts.numbered_lines(node.value, node.line)
    return tuple(words)
