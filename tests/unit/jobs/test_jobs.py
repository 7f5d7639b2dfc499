"""Jobs as they are written: what every one of them gets right, and golden files for each launcher and fabric."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rdma_images.core import paths, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Fabric
from rdma_images.facts.environment import Environment
from rdma_images.facts.instances import INTERFACE_RESOURCES
from rdma_images.jobs.write import decisions
from tests.support import job_parts as jobs

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "jobs"
KUBERNETES = "1.36"
EVERY = list(jobs.combinations())
ON_KUBERNETES = [
    combination
    for combination in EVERY
    if jobs.load_project().facts.launchers.launchers[combination[0]].kind == "kubernetes" and combination[0] != "arena"
]
EXCLUDE = {"exclude": "ip-10-0-1-17.ec2.internal,n3"}
TYPES = jobs.load_project().facts.instances.types


@pytest.mark.parametrize(("launcher", "fabric", "starter"), EVERY)
def test_golden(launcher: str, fabric: str, starter: str, request: pytest.FixtureRequest) -> None:
    """Read a change as a diff: pytest tests/unit/jobs/test_jobs.py --update-golden writes them anew."""
    job = jobs.files(jobs.job(launcher, fabric, starter))
    del job["job.json"]  # it quotes the facts, and has its own test
    compare(GOLDEN / f"{launcher}-{fabric}-{starter}", job, request)


@pytest.mark.parametrize(
    ("name", "instance", "parameters"),
    [
        ("eksctl", "p5.48xlarge", {}),
        ("eksctl-template", "p6-b300.48xlarge", {"security-groups": "sg-0a", "launch-template": "lt-0a"}),
        ("eksctl-block", "p5.48xlarge", {"capacity-block": "cr-0a"}),
        ("eksctl-dra", "p5en.48xlarge", {"devices": "dra", "capacity-reservation": "cr-0a"}),
    ],
)
def test_golden_cluster(name: str, instance: str, parameters: dict[str, str], request: pytest.FixtureRequest) -> None:
    compare(GOLDEN / name, jobs.cluster_files(instance, **parameters), request)


@pytest.mark.parametrize(
    ("instance", "parameters"), [("p6-b300.48xlarge", {}), ("p5.48xlarge", {"launch-template": "lt-0a"})]
)
def test_a_capacity_block_with_a_launch_template_is_refused(instance: str, parameters: dict[str, str]) -> None:
    with pytest.raises(RefusedError, match=r"capacity-block: .* needs a launch template, .*\nleave --param launch-t"):
        jobs.cluster_files(instance, **parameters, **{"capacity-block": "cr-0a"})


def compare(folder: Path, rendered: Mapping[str, str], request: pytest.FixtureRequest) -> None:
    """Hold the files against those of the folder, or write those anew."""
    if request.config.getoption("--update-golden"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in rendered.items():
            (folder / name).write_text(text, encoding="utf-8")
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == rendered


VARIANTS = [
    (*on_kubernete, changes)
    for on_kubernete in ON_KUBERNETES
    for changes in ({}, {"tcp": True}, {"gpus": 2}, {"parameters": EXCLUDE}, {"parameters": {"devices": "dra"}})
    if on_kubernete[1] == "efa" or changes != {"parameters": {"devices": "dra"}}
]


@pytest.mark.parametrize(("launcher", "fabric", "starter", "changes"), VARIANTS)
def test_kubernetes_takes_the_pods(launcher: str, fabric: str, starter: str, changes: dict[str, Any]) -> None:
    """Its own schema, strict: no unknown key, no wrong type, no quantity that is none."""
    job = jobs.job(launcher, fabric, starter, **changes)
    for template in jobs.pods(job):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", **template.get("metadata", {})}}
        kubernetes_validate.validate({**pod, "spec": template["spec"]}, KUBERNETES, strict=True)
    for text in jobs.files(job).values():
        for document in jobs.documents(text) if text.startswith("#") and "apiVersion" in text else ():
            if document["kind"] == "ResourceClaimTemplate":
                kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("starter", ["mpirun", "torchrun"])
def test_kubernetes_takes_what_skypilot_is_told_of_the_pod(starter: str) -> None:
    """SkyPilot itself does not look into pod_config."""
    task = yaml.safe_load(jobs.files(jobs.job("skypilot", "efa", starter))["job.yaml"])
    spec = task["config"]["kubernetes"]["pod_config"]["spec"]
    spec["containers"][0] |= {"name": "ray-node", "image": "x"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    resources = spec["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"]
    assert resources["limits"]["vpc.amazonaws.com/efa"] == 32


@pytest.mark.parametrize(("launcher", "fabric", "starter"), ON_KUBERNETES)
def test_what_every_pod_with_gpus_has(launcher: str, fabric: Fabric, starter: str) -> None:
    job = jobs.job(launcher, fabric, starter)
    with_gpus = [pod for pod in jobs.pods(job) if "volumeMounts" in pod["spec"]["containers"][0]]
    assert with_gpus
    for template in with_gpus:
        spec = template["spec"]
        (container,) = spec["containers"]
        resources = container["resources"]
        assert "requests" not in resources
        assert resources["limits"][INTERFACE_RESOURCES[fabric]] == job.per_node.interfaces
        assert container["image"].rpartition("@")[2].startswith("sha256:")
        assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
        shm = next(volume for volume in spec["volumes"] if volume["name"] == "shm")
        assert shm == {"name": "shm", "emptyDir": {"medium": "Memory"}}
        assert spec["nodeSelector"]["node.kubernetes.io/instance-type"] == job.instance
        assert spec["nodeSelector"]["kubernetes.io/arch"] == "amd64"
        affinity = spec["affinity"]
        (apart,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (together,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert apart["topologyKey"] == "kubernetes.io/hostname"
        assert together["topologyKey"] == "topology.kubernetes.io/zone"
        assert apart["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        environment = {row["name"]: row.get("value") or row["valueFrom"] for row in container["env"]}
        assert environment["RDMA_IMAGES_NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
        # mpirun brings those of its own pod.
        assert environment.get("NCCL_DEBUG") == (None if starter == "mpirun" else "INFO")


@pytest.mark.parametrize("launcher", ["mpijob", "trainjob", "pytorchjob", "leaderworkerset", "skypilot", "slurm"])
def test_a_node_can_be_excluded(launcher: str) -> None:
    starter = "mpirun" if launcher == "mpijob" else "torchrun"
    text = "".join(jobs.files(jobs.job(launcher, "efa", starter, parameters=EXCLUDE)).values())
    if launcher == "slurm":
        assert f"#SBATCH --exclude={EXCLUDE['exclude']}\n" in text
    else:
        for node in EXCLUDE["exclude"].split(","):
            assert f'{{key: metadata.name, operator: NotIn, values: ["{node}"]}}' in text


@pytest.mark.parametrize(("launcher", "fabric", "starter"), EVERY)
def test_no_variable_is_harmful(launcher: str, fabric: str, starter: str) -> None:
    rows = yaml_file.load(paths.FACTS / "environment.yaml", Environment).variables.values()
    for name, node in TYPES.items():
        if node.fabric != fabric or not _can_have(launcher, name):
            continue
        job = jobs.job(launcher, fabric, starter, instance=name)
        versions = {value.name: value.version for value in jobs.planned_image(job.target).components.values()}
        assert [row.name for row in rows if row.applies_to(job.variables, fabric, versions)] == []


@pytest.mark.parametrize(("launcher", "fabric", "starter"), EVERY)
def test_every_type_has_what_is_asked_of_it(launcher: str, fabric: Fabric, starter: str) -> None:
    """All GPUs, one, and every number between; the sum of all parts is no more than the node."""
    reserved = jobs.load_project().facts.instances.nodes[fabric]
    for name, node in TYPES.items():
        if node.fabric != fabric or not _can_have(launcher, name):
            continue
        for gpus in range(1, node.gpus + 1):
            requested = jobs.job(launcher, fabric, starter, instance=name, gpus=gpus).per_node
            assert 1 <= requested.interfaces <= node.interfaces
            parts = node.gpus // gpus
            assert parts * requested.hugepages <= reserved.hugepages
            assert parts * requested.memory <= node.memory * 1024 - reserved.hugepages


def _can_have(launcher: str, name: str) -> bool:
    form = jobs.load_project().facts.launchers.launchers[launcher].instances
    return name != "p3dn.24xlarge" and (form is None or bool(re.fullmatch(form, name)))  # CUDA 13 knows no V100


@pytest.mark.parametrize(
    ("instance", "gpus", "interfaces", "hugepages"),
    [
        ("p5.48xlarge", 8, 32, 5120),
        ("p5.48xlarge", 4, 16, 2560),
        ("p5.48xlarge", 1, 4, 640),
        ("p4d.24xlarge", 8, 4, 5120),
        ("p4d.24xlarge", 1, 1, 640),
        ("p5en.48xlarge", 8, 16, 5120),
        ("p6-b300.48xlarge", 8, 16, 5120),
        ("g5.12xlarge", 2, 1, 2560),
        ("g6e.24xlarge", 4, 2, 5120),
    ],
)
def test_interfaces_by_gpus(instance: str, gpus: int, interfaces: int, hugepages: int) -> None:
    per_node = jobs.job("mpijob", "efa", "mpirun", instance=instance, gpus=gpus).per_node
    assert (per_node.gpus, per_node.interfaces, per_node.hugepages) == (gpus, interfaces, hugepages)


def test_arena_gets_a_command_that_its_chart_can_write() -> None:
    """The chart writes it without quotes into a YAML list."""
    text = jobs.files(jobs.job("arena", "erdma", "torchrun", command=("train.py",)))["submit.sh"]
    words = shlex.split(text.partition("\nexec ")[2].replace("\\\n", ""))
    assert words[:3] == ["arena", "submit", "pytorch"]
    assert "--device=aliyun/erdma=1" in words
    assert not any(word.startswith("--rdma") for word in words)


def test_arena_refuses_a_command_that_yaml_would_cut() -> None:
    with pytest.raises(RefusedError, match="script of the image"):
        jobs.files(jobs.job("arena", "erdma", "torchrun", command=("train.py", "a: b")))


def test_tcp_is_tcp_on_every_launcher() -> None:
    """NCCL_NET=Socket is the only thing that makes an image that fails closed measure TCP."""
    for launcher, fabric, starter in EVERY:
        job = jobs.job(launcher, fabric, starter, tcp=True)
        assert job.variables["NCCL_NET"] == "Socket"
        assert "Socket" in "".join(text for name, text in jobs.files(job).items() if name != "job.json")


def test_pyxis_is_told_what_wins_over_the_image() -> None:
    text = jobs.files(jobs.job("slurm", "efa", "mpirun", tcp=True))["job.sbatch"]
    named = text.partition("--container-env=")[2].split()[0].strip('"').split(",")
    assert set(jobs.job("slurm", "efa", "mpirun", tcp=True).environment) == set(named)


def test_job_json_says_why() -> None:
    job = jobs.job("mpijob", "efa", "mpirun")
    data = json.loads(jobs.files(job)["job.json"])
    assert data["digest"] == job.image.partition("@")[2]
    assert (data["ranks"], data["per_node"]["interfaces"]) == (16, 32)
    assert all(value["why"] and value["source"] for value in data["values"])
    assert {"image", "nodes", "gpus", "vpc.amazonaws.com/efa", "NCCL_DEBUG"} <= {
        value["name"] for value in data["values"]
    }


def test_variables_of_single_types() -> None:
    assert "NCCL_SHM_USE_CUDA_MEMCPY" not in jobs.job("mpijob", "efa", "mpirun", instance="g5.48xlarge").environment
    assert (
        jobs.job("mpijob", "erdma", "mpirun", instance="ecs.ebmgn9gc.64xlarge").environment["NCCL_NET_GDR_LEVEL"]
        == "SYS"
    )
    assert (
        "NCCL_IB_GID_INDEX" not in jobs.job("mpijob", "erdma", "mpirun", instance="ecs.gn8is-4x.16xlarge").environment
    )


@pytest.mark.parametrize("launcher", ["mpijob", "trainjob", "docker"])
def test_ssh_between_ranks_is_the_users_where_the_target_has_one(launcher: str) -> None:
    project = jobs.load_project()
    name = "efa-nccl-tests"
    target = project.matrix.targets[name]
    with_user = target.model_validate({**target.model_dump(by_alias=True, exclude_unset=True), "user": "nonroot"})
    changed = replace(
        project, matrix=project.matrix.model_copy(update={"targets": {**project.matrix.targets, name: with_user}})
    )
    job = decisions.decide_job(jobs.job_request(launcher, "efa", "mpirun"), changed)
    assert (job.user, job.home, job.ssh_port) == ("nonroot", "/home/nonroot", 2222)
    text = "\n".join(content for file, content in jobs.files(job).items() if file != "job.json")
    assert "/root" not in text
    assert "port: 22\n" not in text
    assert "-p 2222 -o ConnectionAttempts=10" in text
    assert "sshd -D -e -p 2222 -h /tmp/ssh_host_key -o UsePAM=no" in text
    assert "/home/nonroot/.ssh" in text
    readers = [
        template
        for template in jobs.pods(job)
        if template["spec"].get("securityContext") == {"supplementalGroups": [0]}
    ]
    assert len(readers) == (2 if launcher == "trainjob" else 0)
