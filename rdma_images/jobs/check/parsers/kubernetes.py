"""Read the pods and nodes that Kubernetes manifests, SkyPilot tasks and eksctl files ask for."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from rdma_images.core.yaml_file import ForeignDocument
from rdma_images.jobs.check.foreign_job import (
    JobPart,
    Launch,
    LocatedText,
    Network,
    RankStart,
    ShellFault,
    Trait,
    YamlNode,
)
from rdma_images.jobs.check.parsers import shell

INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
SHARED_LABELS = re.compile(r"kubernetes\.io/(os|arch)|.*[./-](present|health[\w-]*)")  # labels that unlike nodes share
RANKS_OF_OPERATORS = ("nprocPerNode", "numProcPerNode")
RANKS_PLACED = re.compile(r"(?<![\w-])-N\b|npernode|ppr\b")  # mpirun's ranks of each node
STARTS_RAY = re.compile(r"\bray\b|\.sh\b")
# What a shell leaves as it is: a heredoc whose end is quoted, and a word in single quotes.
LITERAL = re.compile(
    r"<<-?\s*(?P<quote>['\"])(?P<end>\w+)(?P=quote).*?^\s*(?P=end)$|'[^'\n]*'", re.DOTALL | re.MULTILINE
)
# What SkyPilot sets in a task's `run`, and not in its `setup`, where no default stands behind it.
RUN_VARIABLE = re.compile(
    r"\$\{?(SKYPILOT_(?:NODE_IPS|NODE_RANK|NUM_GPUS_PER_NODE|NUM_NODES)|SKY_NODE_(?:IPS|RANK))\b(?!:?[-=])"
)
GPU = "nvidia.com/gpu"
ROLES = ("Launcher", "Worker", "Master", "Chief")

NETWORKS = ("k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network")  # annotations that Multus reads
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
HOST_PATHS: dict[str, Trait] = {"/dev/shm": "host-shm", "/dev/infiniband": "host-devices"}


def parts(document: ForeignDocument) -> Iterator[JobPart]:
    """Yield the parts of a document; none for one that starts nothing."""
    top = YamlNode(document, document.data)
    kind = top.lookup("kind").value
    if kind == "ClusterConfig":
        yield from _node_groups(top)
    elif kind == "TrainJob":
        yield _train_job(top)
    elif kind is not None:
        for pod in _pods(top):
            yield _pod(top, pod)
    elif top.lookup("distributed_type").value not in (None, "MULTI_CPU") and "num_machines" in top.mapping:
        yield _accelerate(top)
    elif _is_skypilot(top.mapping):
        yield _skypilot(top)


def _pods(node: YamlNode) -> Iterator[YamlNode]:
    """Yield every pod's specification in a document, wherever an operator keeps it."""
    if any(container.mapping for container in node.lookup("containers").items):
        yield node
        return
    for child in node.children:
        yield from _pods(child)


def _pod(top: YamlNode, pod: YamlNode) -> JobPart:
    container = _main_container(pod.lookup("containers").items)
    kind = str(top.lookup("kind").value)
    role = next((str(step) for step in pod.path if step in ROLES), "")
    requested, limits = container.lookup("resources", "requests").words, container.lookup("resources", "limits").words
    network = pod.lookup("hostNetwork").word
    command = _command(container)
    is_elastic = "elasticPolicy" in top.lookup("spec").mapping  # the operator may start as many as torchrun waits for
    return JobPart(
        top.document.name,
        container.line,
        "kubernetes",
        f"{kind} {role}".strip(),
        instance=_instance(pod),
        nodes=_replicas(top, pod),
        gpus=requested.get(GPU) or limits.get(GPU),
        image=container.lookup("image").word,
        requests=requested,
        limits=limits,
        environment={**_environment(container), **command.variables},
        traits=dict(_traits(top, pod, container)),
        network="host" if network and network.text == "true" else "pod",
        start=replace(
            command.start,
            ranks=command.start.ranks
            or next((word for key in RANKS_OF_OPERATORS if (word := top.lookup("spec", key).word)), None),
            nodes=None if is_elastic else command.start.nodes,
        ),
    )


def _main_container(containers: list[YamlNode]) -> YamlNode:
    """Return the container that the job runs in: the one that asks for GPUs, else the first."""
    described = [container for container in containers if container.mapping]
    return next(
        (container for container in described if GPU in str(container.lookup("resources").mapping)), described[0]
    )


def _traits(top: YamlNode, pod: YamlNode, container: YamlNode) -> Iterator[tuple[Trait, LocatedText]]:
    """Yield what a pod says beside its resources and variables."""
    yield from _host_devices(pod)
    yield from _run_policy(top, pod)
    kind, mounts, claims = top.lookup("kind"), container.lookup("volumeMounts"), pod.lookup("resourceClaims")
    if network := pod.lookup("hostNetwork").word:
        yield "host-network", network
    if policy := pod.lookup("dnsPolicy").word:
        yield "dns-policy", policy
    capabilities = container.lookup("securityContext", "capabilities", "add")
    if {"IPC_LOCK", "CAP_IPC_LOCK", "ALL"} & {str(item.value) for item in capabilities.items}:
        yield "ipc-lock", capabilities.with_text("given")
    if pod.lookup("hostIPC").value != "true" and "/dev/shm" not in str(mounts.value):
        yield "default-shm", container.with_text("given")
    if "/dev/shm" in str(mounts.value) and (volume := _disk_folder(pod, mounts)):
        yield "disk-shm", volume
    if name := top.lookup("metadata", "name").word:
        yield "name", name
    if pod_names := _pod_names(top, pod):
        yield "pod-names", pod_names
    annotations = top.lookup(*pod.path[:-1], "metadata", "annotations").mapping
    if any(name in annotations for name in NETWORKS):
        yield "networks", pod.with_text("given")
    if kind.value in ("DaemonSet", "Deployment"):
        yield "service", kind.with_text(kind.value)
    if mounts.items:
        yield "mounts", mounts.with_text(":".join(str(mount.lookup("mountPath").value) for mount in mounts.items))
    privileged = container.lookup("securityContext", "privileged").word
    if privileged and privileged.text == "true":
        yield "privileged", privileged
    if claims.value:  # of DRA, which may give adapters
        yield "claims", claims.with_text("given")
    selector = pod.lookup("nodeSelector")
    if label := next((label for label in selector.mapping if not SHARED_LABELS.fullmatch(label)), None):
        yield "selector", selector.lookup(label).with_text(label)
    if nodes := _pytorch_nodes(top) or _ray_nodes(top, pod):
        yield "job-nodes", nodes
    words = f"{container.lookup('command').value} {container.lookup('args').value}"
    if (slots := _mpi_slots(top)) and "oversubscribe" not in words.lower():
        yield "mpi-slots", slots
    if STARTS_RAY.search(words) or str(top.lookup("kind").value).startswith(("Ray", "LeaderWorkerSet")):
        yield "ray", container.with_text("given")
    if RANKS_PLACED.search(words):
        yield "ranks-placed", container.with_text("given")


def _disk_folder(pod: YamlNode, mounts: YamlNode) -> LocatedText | None:
    """Return the emptyDir on /dev/shm that is a folder on the node's disk.

    Returns:
        None for another volume, and for memory.
    """
    names = {mount.lookup("name").value for mount in mounts.items if mount.lookup("mountPath").value == "/dev/shm"}
    for volume in pod.lookup("volumes").items:
        folder = volume.lookup("emptyDir")
        if volume.lookup("name").value in names and "emptyDir" in volume.mapping:
            is_folder = folder.value in (None, "", {}) or "medium" not in folder.mapping
            return volume.with_text("emptyDir") if is_folder else None
    return None


def _pod_names(top: YamlNode, pod: YamlNode) -> LocatedText | None:
    """Return the names of the first pod of each group of an object, with blanks between.

    None where the object has one pod, gives its pods no names, or does not show them.
    """
    name, spec = str(top.lookup("metadata", "name").value), top.lookup("spec")
    kind, is_volcano = top.lookup("kind").value, str(top.lookup("apiVersion").value).startswith("batch.volcano.sh/")
    hosts, subdomain = [f"{name}-0"], None
    if kind == "JobSet":
        hosts = [f"{name}-{group.lookup('name').value}-0-0" for group in spec.lookup("replicatedJobs").items]
        subdomain = spec.lookup("network", "subdomain").value or name
    elif kind == "Job" and is_volcano:
        tasks = spec.lookup("tasks").items
        hosts = [f"{name}-{group.lookup('name').value}-0" for group in tasks]
        total = _total(tasks, spec)
        subdomain = name if "svc" in spec.lookup("plugins").mapping and total and total.text != "1" else None
    elif kind == "StatefulSet" and spec.lookup("replicas").value not in (None, "1"):
        subdomain = spec.lookup("serviceName").value
    elif kind == "Job" and spec.lookup("completionMode").value == "Indexed":
        subdomain = pod.lookup("subdomain").value
    if not subdomain or not all(NAME.fullmatch(str(text)) for text in (name, subdomain, *hosts)):
        return None
    return top.with_text(" ".join(f"{host}.{subdomain}" for host in hosts))


def _train_job(top: YamlNode) -> JobPart:
    trainer = top.lookup("spec", "trainer")
    resources = trainer.lookup("resourcesPerNode")
    requested, limits = resources.lookup("requests").words, resources.lookup("limits").words
    command = _command(trainer)
    traits: dict[Trait, LocatedText] = {}
    if resources.mapping:
        traits["replaces"] = resources.with_text("resourcesPerNode")
    runtime = top.lookup("spec", "runtimeRef")
    if name := runtime.lookup("name").word:
        traits["runtime"] = runtime.with_text(name.text)
    return JobPart(
        top.document.name,
        trainer.line,
        "kubernetes",
        "TrainJob",
        instance=_instance_anywhere(top),
        nodes=trainer.lookup("numNodes").word,
        gpus=requested.get(GPU) or limits.get(GPU),
        image=trainer.lookup("image").word,
        requests=requested,
        limits=limits,
        environment={**_environment(trainer), **command.variables},
        traits=traits,
        start=replace(command.start, ranks=command.start.ranks or trainer.lookup("numProcPerNode").word),
    )


def _accelerate(top: YamlNode) -> JobPart:
    """Return the part of a configuration of accelerate, which is of one machine."""
    options = {**top.words, "config_file": LocatedText(top.document.name, 1)}
    launch = Launch(program="accelerate", line=1, options=options, arguments={}, is_certain=True)
    title = "accelerate configuration"
    return JobPart(top.document.name, 1, "script", title, network="host", start=RankStart(launches=(launch,)))


def _is_skypilot(mapping: dict[str, Any]) -> bool:
    has_scripts = {"run", "num_nodes"} & mapping.keys() or {"setup", "resources"} <= mapping.keys()
    return bool(has_scripts) and isinstance(mapping.get("resources", {}), dict)


def _skypilot(top: YamlNode) -> JobPart:
    resources, aws = top.lookup("resources"), top.lookup("config", "aws")
    accelerators, image_id = resources.lookup("accelerators"), resources.lookup("image_id")
    pod = top.lookup("config", "kubernetes", "pod_config", "spec")
    inner = pod.lookup("containers", 0, "resources") if pod.lookup("containers").items else pod.lookup("containers")
    gpu, _, count = str(accelerators.value or "").partition(":")
    network = _network_of_cloud(resources.mapping)
    image = _skypilot_image(str(image_id.value or ""), network)
    internal = aws.lookup("use_internal_ips").word
    words: dict[Trait, LocatedText | None] = {
        **{key: resources.lookup(key).word for key in ("network_tier", "infra", "cloud")},
        "run": top.lookup("run").word,
        "gpu": accelerators.with_text(gpu) if gpu else None,
        "internal-ips": aws.with_text(internal.text) if internal else None,
    }
    script = words["run"] or LocatedText("", 1)
    run = shell.read_settings(script.text, shell.block_start(script.line, script.text))
    return JobPart(
        top.document.name,
        1,
        "skypilot",
        "SkyPilot task",
        instance=_instance(pod) or resources.lookup("instance_type").word,
        nodes=top.lookup("num_nodes").word,
        gpus=accelerators.with_text(count or "1") if gpu else None,
        image=image_id.with_text(image) if image else None,
        requests=inner.lookup("requests").words,
        limits=inner.lookup("limits").words,
        environment={**top.lookup("envs").words, **run.variables},
        traits={key: word for key, word in words.items() if word},
        network=network,
        start=replace(run.start, unexpanded=(*run.start.unexpanded, *_early_variables(top))),
    )


def _early_variables(top: YamlNode) -> Iterator[ShellFault]:
    """Yield the variables that a task's `setup` reads, and that SkyPilot sets in `run` alone."""
    setup, passed_over = top.lookup("setup").word, {*top.lookup("envs").mapping, *top.lookup("secrets").mapping}
    text = LITERAL.sub(lambda match: "\n" * match[0].count("\n"), setup.text) if setup else ""
    lines = text.split("\n") if "resources" in top.mapping else []
    for number, line in enumerate(lines, shell.block_start(setup.line, setup.text) if setup else 1):
        for name in RUN_VARIABLE.findall(line.split("#")[0]):
            if name not in passed_over:
                passed_over.add(name)
                problem = f"{name} is empty in `setup`: SkyPilot sets it in `run` alone"
                fix = f"read it in `run`, or {name.replace('SKYPILOT_', 'SKYPILOT_SETUP_')} in `setup`"
                yield ShellFault(LocatedText(name, number), problem, fix)


def _skypilot_image(image_id: str, network: Network | None) -> str:
    """Return the image of a task's container; "" for that of a machine, as ami-0a."""
    prefix, _, name = image_id.partition(":")
    if prefix == "docker":
        return name
    return image_id if network == "pod" and prefix != "skypilot" else ""


def _network_of_cloud(resources: dict[str, Any]) -> Network | None:
    """Return whose interfaces a SkyPilot task sees, a pod's or a machine's.

    Returns:
        None where it does not name its cloud.
    """
    cloud = str(resources.get("infra") or resources.get("cloud") or "").partition("/")[0].lower()
    return None if not cloud or cloud == "*" else "pod" if cloud in ("k8s", "kubernetes") else "host"


def _node_groups(top: YamlNode) -> Iterator[JobPart]:
    groups = [group for key in ("managedNodeGroups", "nodeGroups") for group in top.lookup(key).items if group.mapping]
    for group in groups:
        template = group.lookup("launchTemplate")
        zones = group.lookup("availabilityZones").value or group.lookup("subnets").value or []
        if group.lookup("capacityReservation").value:  # which is in one zone
            zones = None
        words: dict[Trait, LocatedText | None] = {
            "efa-enabled": group.lookup("efaEnabled").word,
            "private": group.lookup("privateNetworking").word,
            "launch-template": template.with_text("given") if "launchTemplate" in group.mapping else None,
            "zones": group.with_text(str(len(zones))) if isinstance(zones, list) else None,
        }
        yield JobPart(
            top.document.name,
            group.line,
            "eksctl",
            f"eksctl node group {group.mapping.get('name', group.path[-1])}",
            instance=group.lookup("instanceType").word,
            nodes=group.lookup("desiredCapacity").word,
            traits={name: word for name, word in words.items() if word},
        )


def _instance(spec: YamlNode) -> LocatedText | None:
    """Return the only instance type that a pod may land on, by its selector or affinity."""
    selector = spec.lookup("nodeSelector")
    for label in INSTANCE_LABELS:
        if label in selector.mapping:
            return selector.lookup(label).word
    for terms in _expressions(spec.lookup("affinity")):
        values = terms.lookup("values").items
        if terms.lookup("key").value in INSTANCE_LABELS and len(values) == 1:
            return terms.with_text(values[0].value) if values[0].word else None
    return None


def _instance_anywhere(node: YamlNode) -> LocatedText | None:
    """Return the instance type that a node selector at any depth names."""
    if instance := _instance(node):
        return instance
    return next((word for child in node.children if (word := _instance_anywhere(child))), None)


def _expressions(node: YamlNode) -> Iterator[YamlNode]:
    """Yield the match expressions of an affinity, at any depth."""
    if {"operator", "key"} <= node.mapping.keys():
        yield node
    for child in node.children:
        yield from _expressions(child)


def _ancestors(top: YamlNode, pod: YamlNode) -> Iterator[YamlNode]:
    """Yield a pod's specification, then everything around it, the nearest first."""
    return (top.lookup(*pod.path[:depth]) for depth in range(len(pod.path), 0, -1))


def _replicas(top: YamlNode, pod: YamlNode) -> LocatedText | None:
    """Return the number of pods of a template, from the nearest object around it.

    For a LeaderWorkerSet it is the size of each replica.
    """
    is_server = top.lookup("kind").value == "LeaderWorkerSet"
    for ancestor in _ancestors(top, pod):
        for key in ("size",) if is_server else ("replicas", "parallelism", "numNodes"):
            if key in ancestor.mapping:
                return ancestor.lookup(key).word
    return None


def _mpi_slots(top: YamlNode) -> LocatedText | None:
    """Return the slots of all hosts that mpi-operator names to mpirun.

    Returns:
        None for another job, and for an open number.
    """
    workers = top.lookup("spec", "mpiReplicaSpecs", "Worker", "replicas")
    slots = top.lookup("spec", "slotsPerWorker").word or LocatedText("1", workers.line)
    if not workers.word or workers.word.number is None or slots.number is None:
        return None
    hosts = workers.word.number + (top.lookup("spec", "runLauncherAsWorker").value == "true")
    return LocatedText(str(hosts * slots.number), slots.line)


def _pytorch_nodes(top: YamlNode) -> LocatedText | None:
    """Return the nodes of a PyTorchJob, of which its master is one.

    Returns:
        None for another job, and for one that may grow.
    """
    roles = top.lookup("spec", "pytorchReplicaSpecs")
    return _total([roles.lookup(role) for role in roles.mapping], roles)


def _ray_nodes(top: YamlNode, pod: YamlNode) -> LocatedText | None:
    """Return the nodes with GPUs of a pod's Ray cluster; None for another job."""
    position = next((n for n, step in enumerate(pod.path) if step in ("headGroupSpec", "workerGroupSpecs")), None)
    if not str(top.lookup("kind").value).startswith("Ray") or position is None:
        return None
    cluster = top.lookup(*pod.path[:position])
    groups = [cluster.lookup("headGroupSpec"), *cluster.lookup("workerGroupSpecs").items]
    return _total([group for group in groups if GPU in str(group.mapping)], pod)


def _total(groups: list[YamlNode], node: YamlNode) -> LocatedText | None:
    """Return the replicas of all groups, in the line of `node`; None if one has no number."""
    counts = [LocatedText(str(group.lookup("replicas").value or "1"), 1).number for group in groups]
    known_counts = [count for count in counts if count is not None]
    return node.with_text(str(sum(known_counts))) if counts and len(known_counts) == len(counts) else None


def _host_devices(pod: YamlNode) -> Iterator[tuple[Trait, LocatedText]]:
    """Yield the folders of the node's /dev that a pod mounts by path."""
    for volume in pod.lookup("volumes").items:
        mounted = str(volume.lookup("hostPath", "path").value)
        if trait := HOST_PATHS.get(mounted.rstrip("/")):
            yield trait, volume.with_text(mounted)


def _run_policy(top: YamlNode, pod: YamlNode) -> Iterator[tuple[Trait, LocatedText]]:
    """Yield the operator's limit of retries, and the restart policy nearest to the pod."""
    for limit in (top.lookup("spec", "backoffLimit"), top.lookup("spec", "runPolicy", "backoffLimit")):
        if limit.word:
            yield "tries", limit.word
    policies = (ancestor.lookup("restartPolicy").word for ancestor in _ancestors(top, pod))
    if policy := next(filter(None, policies), None):
        yield "restart", policy


def _environment(container: YamlNode) -> Mapping[str, LocatedText]:
    entries = [entry for entry in container.lookup("env").items if isinstance(entry.lookup("name").value, str)]
    return {entry.lookup("name").value: entry.with_text(str(entry.lookup("value").value or "")) for entry in entries}


def _command(container: YamlNode) -> shell.ShellSettings:
    """Return what a container's command sets: words, or a shell's lines among them."""
    texts: list[shell.ShellSettings] = []
    words: list[LocatedText] = []
    for node in (*container.lookup("command").items, *container.lookup("args").items):
        word = node.value
        if isinstance(word, str) and ("\n" in word or " " in word):
            texts.append(shell.read_settings(word, shell.block_start(node.line, word)))
        elif isinstance(word, str):
            words.append(node.with_text(word))
    texts.append(shell.read_settings(_multi_line_command(words), words[0].line if words else container.line))
    variables: dict[str, LocatedText] = {}
    start = RankStart()
    for lines in reversed(texts):  # a shell's lines say more than the words around them
        variables |= lines.variables
        start = replace(start, **{name: word for name, word in vars(lines.start).items() if word})
    return shell.ShellSettings(variables, (), None, start)


def _multi_line_command(words: list[LocatedText]) -> str:
    """Return words as one command of a shell, with each word in its own line."""
    text = ""
    for before, word in pairwise([*words[:1], *words]):
        text += " " + "\\\n" * (word.line - before.line) + word.text
    return text
