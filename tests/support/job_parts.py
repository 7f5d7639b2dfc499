"""Jobs for tests: every launcher on each of its fabrics, and the pods in its files."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from rdma_images.inputs import project, target_options
from rdma_images.inputs.project import Project
from rdma_images.jobs.write import cluster, create, job_settings, render
from rdma_images.jobs.write.job import Job, JobRequest
from rdma_images.jobs.write.job_settings import Code, JobSettings
from rdma_images.jobs.write.jobs_file import RoleRequest

IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/image@sha256:" + "5e" * 32
NODE = {"efa": "p5.48xlarge", "erdma": "ecs.ebmgn8v.48xlarge"}
TARGETS = {
    ("efa", "mpirun"): "efa-nccl-tests",
    ("efa", "torchrun"): "efa-pytorch",
    ("erdma", "mpirun"): "erdma-nccl-tests",
    ("erdma", "torchrun"): "erdma-pytorch",
}
SCRIPT = ("train.py", "--data", "it's a test")
PARAMETERS = {
    "mtu": "8500",
    "cidr": "10.0.0.0/8",
    "region": "us-west-2",
    "role": "arn:aws:iam::123456789012:role/training",
    "subnets": "subnet-0a1b",
    "security-groups": "sg-0a1b",
    "output": "s3://bucket/jobs",
    "hosts": "one,two",
}


@cache
def load_project() -> Project:
    return project.load()


@cache
def planned_image(target: str) -> Any:
    """Return the image of a target's default row, cached, because many jobs use one target."""
    (image,) = target_options.chosen_images(load_project(), [target], False, [])
    return image


def job_request(launcher: str, fabric: str, starter: str, **changes: Any) -> JobRequest:
    """Return what asks for two nodes of the fabric, with all that only a user knows."""
    row = load_project().facts.launchers.launchers[launcher]
    all_facts = {**load_project().facts.launchers.parameters, **row.parameters}
    several = load_project().facts.instances.find(changes.get("instance", NODE[fabric])).interfaces > 1
    extra = changes.pop("parameters", {})
    parameters = {
        name: value
        for name, value in PARAMETERS.items()
        if name in all_facts
        and all_facts[name].only_fabric in (None, fabric)
        and (several or not all_facts[name].several_interfaces)
    }
    usual = {
        "target": TARGETS[fabric, starter],
        "launcher": launcher,
        "instance": NODE[fabric],
        "nodes": 2,
        "image": IMAGE,
        "command": SCRIPT if starter == "torchrun" else (),
        "parameters": {**parameters, **extra},
    }
    return JobRequest(**{**usual, **changes})


def job(launcher: str, fabric: str, starter: str, **changes: Any) -> Job:
    return create.decide_any_job(job_request(launcher, fabric, starter, **changes), load_project())


ROLES = {
    "prefill": RoleRequest(command=("sh", "-c", "serve $NODE_RANK"), nodes=2, replicas=2, launch="plain"),
    "decode": RoleRequest(command=("vllm", "serve", "model"), gpus=4, launch="plain", env={"KV": "decode"}),
    "router": RoleRequest(command=("sh", "-c", "route $PREFILL_URLS -- $DECODE_URLS"), gpus=0),
}


def server(fabric: str = "efa", launcher: str = "leaderworkerset", **changes: Any) -> Job:
    """Return the job of a server in parts: prefill, decode and a router."""
    usual = {"nodes": 1, "command": (), "name": "llm", "roles": ROLES}
    return job(launcher, fabric, "torchrun", **{**usual, **changes})


def files(written_job: Job) -> dict[str, str]:
    return create.render_job_files(written_job, load_project())


def cluster_files(instance: str, **parameters: str) -> dict[str, str]:
    """Return the files of an EKS cluster with two nodes of the type."""
    job_parameters = {"second-zone": "us-west-2b", **parameters}
    request = cluster.ClusterRequest("eksctl", instance, 2, "us-west-2", "us-west-2a", parameters=job_parameters)
    return render.render_templates("eksctl", {"cluster": cluster.decide_cluster(request, load_project())})


def combinations() -> Iterator[tuple[str, str, str]]:
    """Launcher, fabric and starter, wherever the three go together."""
    for (name, row), fabric, starter in product(
        load_project().facts.launchers.launchers.items(), ("efa", "erdma"), ("mpirun", "torchrun")
    ):
        if fabric in row.fabrics and starter in row.rank_starters:
            yield name, fabric, starter


def documents(text: str) -> list[Any]:
    return [document for document in yaml.safe_load_all(text) if document]


def templates(node: Any) -> Iterator[Any]:
    """Yield every pod template in an object: what has a spec with containers."""
    if isinstance(node, dict):
        if isinstance(node.get("spec"), dict) and "containers" in node["spec"]:
            yield node
        for value in node.values():
            yield from templates(value)
    elif isinstance(node, list):
        for value in node:
            yield from templates(value)


def pods(written_job: Job) -> list[Any]:
    """Return the pod templates of a job's files for Kubernetes."""
    texts = [text for name, text in files(written_job).items() if name.endswith(".yaml")]
    return [template for text in texts for document in documents(text) for template in templates(document)]


def everything(launcher: str, folder: Path, hidden: str = "") -> JobSettings:
    """Return a job with every field, its code in `folder`, `hidden` in a hidden file."""
    fields = load_project().facts.launchers.launchers[launcher].fields
    data = "/opt/ml/input/data" if launcher == "sagemaker" else ""
    mounts = {
        "host-path": "/fsx/my:/local",
        "claim": "claim:data:/claim" if launcher == "arena" else "claim:data:/claim:ro",
        "lustre": f"lustre:fs-0123456789.fsx.us-west-2.amazonaws.com@tcp:/abcd/sub:{data}/lustre",
        "nfs": "nfs:fs-0a.efs.us-west-2.amazonaws.com:/share:/nfs",
        "s3": f"s3://bucket/pre/fix:{data}/bucket:ro",
    }
    secrets = {"env": "env:TOKEN", "secret": "secret:wandb/api-key", "secretsmanager": "secretsmanager:team/wandb"}
    plan = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/mine"
    writable = next(
        (path for kind, path in (("host-path", "/local/x"), ("claim", "/claim/x")) if f"mount.{kind}" in fields), ""
    )
    (folder / "lib").mkdir(exist_ok=True)
    (folder / "train.py").write_text("print('it: is # \"so\"')\n")
    (folder / "lib" / "weights.bin").write_bytes(b"\xff\x00")
    (folder / ".hidden").write_text(hidden)
    values: dict[str, Any] = {
        "pull_secrets": ("registry",),
        "service_account": "trainer",
        "queue": plan if launcher == "sagemaker" else "team",
        "account": "research",
        "priority": "high",
        "node_selector": {"pool": "gpu", "topology.kubernetes.io/zone": "us-west-2a"},
        "tolerations": ("dedicated", "team=a:NoSchedule", "spot:NoExecute"),
        "topology": "1" if launcher == "slurm" else "topology.k8s.aws/network-node-layer-2",
        "restarts": 3,
        "time": 7200,
        "spot": True,
    }
    return JobSettings(
        mounts=tuple(job_settings.parse_mount(text) for kind, text in mounts.items() if f"mount.{kind}" in fields),
        code=Code(str(folder), job_settings.CODE),
        env={"GREETING": "it's; $HOME"},
        secrets=dict([("TOKEN", source) for kind, source in secrets.items() if f"secret.{kind}" in fields][:1]),
        checkpoints=writable or "/opt/ml/checkpoints",
        **{name: value for name, value in values.items() if name.replace("_", "-") in fields},
    )
