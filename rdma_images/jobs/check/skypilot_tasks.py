"""Read SkyPilot's tasks: machines of a cloud, or pods of Kubernetes."""

from rdma_images.jobs.check import kubernetes_manifests, sbatch_scripts
from rdma_images.jobs.check.node_group import LocatedText, Network, NodeGroup
from rdma_images.jobs.check.yaml_node import YamlNode


def is_task(top: YamlNode) -> bool:
    """Return whether a document without a `kind` is a task."""
    keys = top.mapping.keys()
    has_scripts = bool({"run", "num_nodes"} & keys) or {"setup", "resources"} <= keys
    return has_scripts and isinstance(top.mapping.get("resources", {}), dict)


def read_task(top: YamlNode) -> NodeGroup:
    """Return the group of a task."""
    resources, run = top.lookup("resources"), top.lookup("run")
    accelerators, image_id = resources.lookup("accelerators"), resources.lookup("image_id")
    pod = top.lookup("config", "kubernetes", "pod_config", "spec")
    inner = pod.lookup("containers", 0, "resources")
    gpu, _, count = accelerators.text.partition(":")
    cloud = resources.lookup("infra").word or resources.lookup("cloud").word
    network = _network(cloud)
    image = _container_image(image_id.text, network)
    lines = tuple(sbatch_scripts.numbered_lines(run.value, run.line)) if isinstance(run.value, str) else ()
    return NodeGroup(
        file=top.document.name,
        line=1,
        kind="skypilot",
        title="SkyPilot task",
        instance=kubernetes_manifests.selected_instance(pod) or resources.lookup("instance_type").word,
        nodes=top.lookup("num_nodes").word,
        gpus=LocatedText(count or "1", accelerators.line) if gpu else None,
        images=(LocatedText(image, image_id.line),) if image else (),
        requests=inner.lookup("requests").words,
        limits=inner.lookup("limits").words,
        environment={**top.lookup("envs").words, **sbatch_scripts.read_settings(lines).variables},
        command=lines,
        network=network,
        cloud=cloud,
        network_tier=resources.lookup("network_tier").word,
        gpu=gpu,
    )


def _container_image(image_id: str, network: Network | None) -> str:
    """Return the image of a task's container; "" for that of a machine, as ami-0a."""
    prefix, _, name = image_id.partition(":")
    if prefix == "docker":
        return name
    return image_id if network == "pod" and prefix != "skypilot" else ""


def _network(cloud: LocatedText | None) -> Network | None:
    """Return whose interfaces a task sees, a pod's or a machine's; None where it does not name its cloud."""
    name = cloud.text.partition("/")[0].lower() if cloud else ""
    return None if name in ("", "*") else "pod" if name in ("k8s", "kubernetes") else "host"
