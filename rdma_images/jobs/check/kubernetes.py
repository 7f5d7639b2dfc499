"""Kubernetes objects, and SkyPilot's and eksctl's files: the pods that they make, and the nodes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rdma_images.core.yaml_file import Path_, Written
from rdma_images.jobs.check import shell
from rdma_images.jobs.check.foreign_job import Network, Piece, Word

INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
OF_MANY_NODES = re.compile(r"kubernetes\.io/(os|arch)|.*[./-](present|health[\w-]*)")  # labels that unlike nodes share
RANKS_OF_OPERATORS = ("nprocPerNode", "numProcPerNode")
ROLES = ("Launcher", "Worker", "Master", "Chief")

HOST_PATHS = {"/dev/shm": "host-shm", "/dev/infiniband": "host-devices"}


def pieces(document: Written) -> Iterator[Piece]:
    """Yield the pieces of a document; none for one that starts nothing."""
    data = document.data
    if not isinstance(data, dict):
        return
    kind = data.get("kind")
    if kind == "ClusterConfig":
        yield from _node_groups(document, data)
    elif kind == "TrainJob":
        yield _train_job(document, data)
    elif kind is None and ("run" in data or "num_nodes" in data) and isinstance(data.get("resources", {}), dict):
        yield _skypilot(document, data)
    elif kind is not None:
        for path, spec in _pods(data):
            yield _pod(document, data, path, spec)


def _pods(data: object, path: Path_ = ()) -> Iterator[tuple[Path_, dict[str, Any]]]:
    """Yield every pod's specification in a document, wherever an operator keeps it."""
    if isinstance(data, dict):
        containers = data.get("containers")
        if isinstance(containers, list) and any(isinstance(container, dict) for container in containers):
            yield path, data
            return
        for key, value in data.items():
            yield from _pods(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _pods(value, (*path, index))


def _pod(document: Written, data: dict[str, Any], path: Path_, spec: dict[str, Any]) -> Piece:
    index = _main(spec["containers"])
    steps: Path_ = (*path, "containers", index)
    container: dict[str, Any] = spec["containers"][index]
    resources = _mapping(container.get("resources"))
    role = next((str(step) for step in path if step in ROLES), "")
    settings = dict(_host_devices(document, path, spec))
    settings |= dict(_run_policy(document, data, path))
    if network := _word(document, (*path, "hostNetwork"), spec.get("hostNetwork")):
        settings["host-network"] = network
    if name := _word(document, ("metadata", "name"), _mapping(data.get("metadata")).get("name")):
        settings["name"] = name
    if data.get("kind") in ("DaemonSet", "Deployment"):
        settings["service"] = Word(str(data["kind"]), document.line("kind"))
    if mounts := [str(_mapping(mount).get("mountPath")) for mount in _list(container.get("volumeMounts"))]:
        settings["mounts"] = Word(":".join(mounts), document.line(*steps, "volumeMounts"))
    if _mapping(container.get("securityContext")).get("privileged") == "true":
        settings["privileged"] = Word("true", document.line(*steps, "securityContext", "privileged"))
    if spec.get("resourceClaims"):  # of DRA, which may give adapters
        settings["claims"] = Word("given", document.line(*path, "resourceClaims"))
    limits = _words(document, (*steps, "resources", "limits"), resources.get("limits"))
    requested = _words(document, (*steps, "resources", "requests"), resources.get("requests"))
    labels = [label for label in _mapping(spec.get("nodeSelector")) if not OF_MANY_NODES.fullmatch(label)]
    if labels:
        settings["selector"] = Word(labels[0], document.line(*path, "nodeSelector", labels[0]))
    if nodes := _pytorch_nodes(document, data) or _ray_nodes(document, data, path):
        settings["job-nodes"] = nodes
    command = _command(document, steps, container)
    is_elastic = "elasticPolicy" in _mapping(data.get("spec"))  # the operator may start as many as torchrun waits for
    return Piece(
        document.name,
        document.line(*steps),
        "kubernetes",
        " ".join(word for word in (str(data.get("kind")), role) if word),
        instance=_instance(document, path, spec),
        nodes=_replicas(document, data, path),
        gpus=requested.get("nvidia.com/gpu") or limits.get("nvidia.com/gpu"),
        image=_word(document, (*steps, "image"), container.get("image")),
        requests=requested,
        limits=limits,
        environment={
            **_environment(document, (*steps, "env"), container.get("env")),
            **command.variables,
        },
        settings=settings,
        network="host" if network and network.text == "true" else "pod",
        ranks=command.ranks or _ranks(document, data),
        rank_nodes=None if is_elastic else command.rank_nodes,
        restarts=command.restarts,
    )


def _main(containers: list[Any]) -> int:
    """Return the container that the job runs in: the one that asks for GPUs, else the first."""
    for index, container in enumerate(containers):
        if "nvidia.com/gpu" in str(_mapping(_mapping(container).get("resources"))):
            return index
    return next(index for index, container in enumerate(containers) if isinstance(container, dict))


def _train_job(document: Written, data: dict[str, Any]) -> Piece:
    steps: Path_ = ("spec", "trainer")
    trainer = _mapping(_mapping(data.get("spec")).get("trainer"))
    resources = _mapping(trainer.get("resourcesPerNode"))
    requested = _words(document, (*steps, "resourcesPerNode", "requests"), resources.get("requests"))
    limits = _words(document, (*steps, "resourcesPerNode", "limits"), resources.get("limits"))
    command = _command(document, steps, trainer)
    settings = {"replaces": Word("resourcesPerNode", document.line(*steps, "resourcesPerNode"))} if resources else {}
    runtime = _mapping(_mapping(data.get("spec")).get("runtimeRef")).get("name")
    if word := _word(document, ("spec", "runtimeRef"), runtime):
        settings["runtime"] = word
    return Piece(
        document.name,
        document.line(*steps),
        "kubernetes",
        "TrainJob",
        instance=_selected_anywhere(document, data),
        nodes=_word(document, (*steps, "numNodes"), trainer.get("numNodes")),
        gpus=requested.get("nvidia.com/gpu") or limits.get("nvidia.com/gpu"),
        image=_word(document, (*steps, "image"), trainer.get("image")),
        requests=requested,
        limits=limits,
        environment={**_environment(document, (*steps, "env"), trainer.get("env")), **command.variables},
        settings=settings,
        ranks=command.ranks or _word(document, (*steps, "numProcPerNode"), trainer.get("numProcPerNode")),
        rank_nodes=command.rank_nodes,
        restarts=command.restarts,
    )


def _skypilot(document: Written, data: dict[str, Any]) -> Piece:
    resources = _mapping(data.get("resources"))
    path: Path_ = ("config", "kubernetes", "pod_config", "spec")
    spec = _mapping(_mapping(_mapping(_mapping(data.get("config")).get("kubernetes")).get("pod_config")).get("spec"))
    containers = spec.get("containers")
    container = _mapping(containers[0]) if isinstance(containers, list) and containers else {}
    steps: Path_ = (*path, "containers", 0, "resources")
    inner = _mapping(container.get("resources"))
    count = str(resources.get("accelerators", "")).partition(":")
    image = str(resources.get("image_id") or "").removeprefix("docker:")
    words = {key: _word(document, ("resources", key), resources.get(key)) for key in ("network_tier", "infra", "cloud")}
    words["run"] = _word(document, ("run",), data.get("run"))
    words["gpu"] = _word(document, ("resources", "accelerators"), count[0] or None)
    aws = _mapping(_mapping(data.get("config")).get("aws"))
    words["internal-ips"] = _word(document, ("config", "aws"), aws.get("use_internal_ips"))
    run = (
        shell.read(words["run"].text, shell.block_start(words["run"].line, words["run"].text)) if words["run"] else None
    )
    return Piece(
        document.name,
        1,
        "skypilot",
        "SkyPilot task",
        instance=_instance(document, path, spec)
        or _word(document, ("resources", "instance_type"), resources.get("instance_type")),
        nodes=_word(document, ("num_nodes",), data.get("num_nodes")),
        gpus=Word(count[2] or "1", document.line("resources", "accelerators")) if count[0] else None,
        image=_word(document, ("resources", "image_id"), image or None),
        requests=_words(document, (*steps, "requests"), inner.get("requests")),
        limits=_words(document, (*steps, "limits"), inner.get("limits")),
        environment={**_words(document, ("envs",), data.get("envs")), **(run.variables if run else {})},
        settings={key: word for key, word in words.items() if word},
        network=_network_of_cloud(resources),
        ranks=run.ranks if run else None,
        rank_nodes=run.rank_nodes if run else None,
        restarts=run.restarts if run else None,
    )


def _network_of_cloud(resources: dict[str, Any]) -> Network | None:
    """Return whose interfaces a SkyPilot task sees, a pod's or a machine's; None where it does not name its cloud."""
    cloud = str(resources.get("infra") or resources.get("cloud") or "").partition("/")[0].lower()
    return None if not cloud or cloud == "*" else "pod" if cloud in ("k8s", "kubernetes") else "host"


def _node_groups(document: Written, data: dict[str, Any]) -> Iterator[Piece]:
    for key in ("managedNodeGroups", "nodeGroups"):
        groups = data.get(key)
        for index, group in enumerate(groups if isinstance(groups, list) else []):
            if not isinstance(group, dict):
                continue
            steps: Path_ = (key, index)
            zones = group.get("availabilityZones") or group.get("subnets") or []
            if group.get("capacityReservation"):  # which is in one zone
                zones = None
            words = {
                "efa-enabled": _word(document, (*steps, "efaEnabled"), group.get("efaEnabled")),
                "private": _word(document, (*steps, "privateNetworking"), group.get("privateNetworking")),
                "launch-template": _word(
                    document, (*steps, "launchTemplate"), "given" if "launchTemplate" in group else None
                ),
                "zones": Word(str(len(zones)), document.line(*steps)) if isinstance(zones, list) else None,
            }
            yield Piece(
                document.name,
                document.line(*steps),
                "eksctl",
                f"eksctl node group {group.get('name', index)}",
                instance=_word(document, (*steps, "instanceType"), group.get("instanceType")),
                nodes=_word(document, (*steps, "desiredCapacity"), group.get("desiredCapacity")),
                settings={name: word for name, word in words.items() if word},
            )


def _instance(document: Written, path: Path_, spec: dict[str, Any]) -> Word | None:
    """Return the only instance type that a pod may land on, by its selector or affinity."""
    selector = _mapping(spec.get("nodeSelector"))
    for label in INSTANCE_LABELS:
        if label in selector:
            return _word(document, (*path, "nodeSelector", label), selector[label])
    for steps, terms in _expressions(spec.get("affinity"), (*path, "affinity")):
        values = terms.get("values")
        if terms.get("key") in INSTANCE_LABELS and isinstance(values, list) and len(values) == 1:
            return _word(document, steps, values[0])
    return None


def _selected_anywhere(document: Written, data: object, path: Path_ = ()) -> Word | None:
    """Return the instance type that a node selector at any depth names."""
    if isinstance(data, dict):
        if instance := _instance(document, path, data):
            return instance
        items: list[tuple[str | int, object]] = list(data.items())
    else:
        items = list(enumerate(data)) if isinstance(data, list) else []
    return next((word for key, value in items if (word := _selected_anywhere(document, value, (*path, key)))), None)


def _expressions(data: object, path: Path_) -> Iterator[tuple[Path_, dict[str, Any]]]:
    if isinstance(data, dict):
        if "operator" in data and "key" in data:
            yield path, data
        for key, value in data.items():
            yield from _expressions(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _expressions(value, (*path, index))


def _replicas(document: Written, data: dict[str, Any], path: Path_) -> Word | None:
    """Return how many pods there are of a template: what the nearest thing around it says.

    Of a LeaderWorkerSet that is the size of each of its replicas.
    """
    is_server = data.get("kind") == "LeaderWorkerSet"
    for depth in range(len(path), 0, -1):
        around: Any = data
        for step in path[:depth]:
            around = around[step]
        if isinstance(around, dict):
            for key in ("size",) if is_server else ("replicas", "parallelism", "numNodes"):
                if key in around:
                    return _word(document, (*path[:depth], key), around[key])
    return None


def _pytorch_nodes(document: Written, data: dict[str, Any]) -> Word | None:
    """Return the nodes of a PyTorchJob, of which its master is one; None for another job, and for one that may grow."""
    steps: Path_ = ("spec", "pytorchReplicaSpecs")
    roles = _mapping(_mapping(data.get("spec")).get("pytorchReplicaSpecs"))
    counts = [Word(str(_mapping(row).get("replicas") or "1"), 1).number for row in roles.values()]
    known_counts = [count for count in counts if count is not None]
    return Word(str(sum(known_counts)), document.line(*steps)) if counts and len(known_counts) == len(counts) else None


def _ray_nodes(document: Written, data: dict[str, Any], path: Path_) -> Word | None:
    """Return the nodes with GPUs of the Ray cluster that a pod belongs to; None for another job."""
    if not str(data.get("kind")).startswith("Ray") or not {"headGroupSpec", "workerGroupSpecs"} & set(path):
        return None
    steps = path[: next(n for n, step in enumerate(path) if step in ("headGroupSpec", "workerGroupSpecs"))]
    cluster: Any = data
    for step in steps:
        cluster = cluster[step]
    groups = [_mapping(cluster.get("headGroupSpec")), *map(_mapping, _list(cluster.get("workerGroupSpecs")))]
    counts = [Word(str(group.get("replicas") or "1"), 1).number for group in groups if "nvidia.com/gpu" in str(group)]
    known_counts = [count for count in counts if count is not None]
    return Word(str(sum(known_counts)), document.line(*path)) if counts and len(known_counts) == len(counts) else None


def _host_devices(document: Written, path: Path_, spec: dict[str, Any]) -> Iterator[tuple[str, Word]]:
    """Yield what of the node's /dev a pod mounts by its path."""
    volumes = spec.get("volumes")
    for index, volume in enumerate(volumes if isinstance(volumes, list) else []):
        mounted = str(_mapping(_mapping(volume).get("hostPath")).get("path"))
        if setting := HOST_PATHS.get(mounted.rstrip("/")):
            yield setting, Word(mounted, document.line(*path, "volumes", index))


def _run_policy(document: Written, data: dict[str, Any], path: Path_) -> Iterator[tuple[str, Word]]:
    """Yield what tries a job again.

    The operator's limit, and the pods' restart policy at any depth above the container.
    """
    spec = _mapping(data.get("spec"))
    for steps in (("spec", "backoffLimit"), ("spec", "runPolicy", "backoffLimit")):
        holder = _mapping(spec.get("runPolicy")) if len(steps) == 3 else spec
        if word := _word(document, steps, holder.get("backoffLimit")):
            yield "tries", word
    for depth in range(len(path), 0, -1):
        around: Any = data
        for step in path[:depth]:
            around = around[step]
        if isinstance(around, dict) and (
            word := _word(document, (*path[:depth], "restartPolicy"), around.get("restartPolicy"))
        ):
            yield "restart", word
            return


def _environment(document: Written, path: Path_, entries: object) -> Mapping[str, Word]:
    variables: dict[str, Word] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        fields = _mapping(entry)
        if isinstance(fields.get("name"), str):
            variables[fields["name"]] = Word(str(fields.get("value") or ""), document.line(*path, index))
    return variables


def _command(document: Written, path: Path_, container: dict[str, Any]) -> shell.ShellSettings:
    """Return what a container's command sets: a list of words, of which some may be a shell's lines."""
    texts: list[shell.ShellSettings] = []
    words: list[str] = []
    for key in ("command", "args"):
        for index, word in enumerate(_list(container.get(key))):
            if isinstance(word, str) and ("\n" in word or " " in word):
                texts.append(shell.read(word, shell.block_start(document.line(*path, key, index), word)))
            elif isinstance(word, str):
                pair = shell.read(
                    f"-x {word}" if words and words[-1] == "-x" else word, document.line(*path, key, index)
                )
                texts.append(pair)
                words.append(word)
    texts.append(shell.read(" ".join(words), document.line(*path, "args" if container.get("args") else "command")))
    variables: dict[str, Word] = {}
    for lines in reversed(texts):  # what a word says has its line, and what the whole says has not
        variables |= lines.variables
    return shell.ShellSettings(
        variables,
        (),
        None,
        ranks=next((lines.ranks for lines in texts if lines.ranks), None),
        rank_nodes=next((lines.rank_nodes for lines in texts if lines.rank_nodes), None),
        restarts=next((lines.restarts for lines in texts if lines.restarts), None),
    )


def _ranks(document: Written, data: dict[str, Any]) -> Word | None:
    """Return how many ranks an operator starts on each node."""
    spec = _mapping(data.get("spec"))
    for key in RANKS_OF_OPERATORS:
        if word := _word(document, ("spec", key), spec.get(key)):
            return word
    return None


def _words(document: Written, path: Path_, data: object) -> dict[str, Word]:
    plain = {key: value for key, value in _mapping(data).items() if isinstance(value, str)}
    return {key: Word(value, document.line(*path, key)) for key, value in plain.items()}


def _word(document: Written, path: Path_, value: object) -> Word | None:
    return Word(value, document.line(*path)) if isinstance(value, str) and value else None


def _list(data: object) -> list[Any]:
    return data if isinstance(data, list) else []


def _mapping(data: object) -> dict[str, Any]:
    return data if isinstance(data, dict) else {}
