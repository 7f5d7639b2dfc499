"""Pods of generated jobs before a real scheduler: what it binds, and what it refuses."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rdma_images.facts.launchers import RunMethod
from rdma_images.jobs.run import job_run, record
from rdma_images.jobs.write import create
from rdma_images.jobs.write.job import Job
from tests.e2e import kube_parts, operator_parts, unpacked
from tests.e2e.kube_parts import RunningCluster
from tests.support import job_parts as jobs

pytestmark = [pytest.mark.e2e, pytest.mark.exhaustive, kube_parts.needs]

ON_KUBERNETES = [
    combination for combination in jobs.combinations() if combination[0] in ("mpijob", "trainjob", "pytorchjob")
]
RESOURCE = {"efa": "vpc.amazonaws.com/efa", "erdma": "aliyun/erdma"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with kube_parts.cluster(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield cluster


@pytest.fixture(name="cluster")
def empty(running: RunningCluster) -> Iterator[RunningCluster]:
    yield running
    running.clear()


def node(cluster: RunningCluster, name: str, instance: str, zone: str = "a", **changes: str) -> None:
    """Add a node as the facts have its type, with what a test changes of it."""
    row = jobs.load_project().facts.instances.types[instance]
    hugepages = jobs.load_project().facts.instances.nodes[row.fabric].hugepages
    gives = {
        "cpu": str(row.vcpus),
        "memory": f"{int(row.memory * 1024 * 0.9) - hugepages}Mi",
        "hugepages-2Mi": f"{hugepages}Mi",
        "nvidia.com/gpu": str(row.gpus),
        RESOURCE[row.fabric]: str(row.interfaces if row.fabric == "efa" else 200 * row.interfaces),
        "pods": "110",
        **changes,
    }
    labels = {
        "node.kubernetes.io/instance-type": instance,
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": zone,
        "aliyun.accelerator/erdma": "true",
    }
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    cluster.node(name, labels, gives, [taint])


def pods(job: Job) -> list[tuple[str, Any]]:
    """Return the pods with GPUs that the operator makes of the job.

    The template of its nodes, as often as it has nodes.
    """
    templates = [pod for pod in jobs.pods(job) if "volumeMounts" in pod["spec"]["containers"][0]]
    return [(f"{job.name}-{number}", templates[-1]) for number in range(job.nodes)]


def bound(cluster: RunningCluster, job: Job) -> list[tuple[str, str]]:
    return [cluster.scheduled(template, name) for name, template in pods(job)]


@pytest.mark.parametrize(("launcher", "fabric", "starter"), ON_KUBERNETES)
def test_a_job_gets_its_nodes_one_each(cluster: RunningCluster, launcher: str, fabric: str, starter: str) -> None:
    for number in range(3):
        node(cluster, f"n{number}", jobs.NODE[fabric])
    nodes = {where for where, _ in bound(cluster, jobs.job(launcher, fabric, starter))}
    assert len(nodes) == 2
    assert "" not in nodes


@pytest.mark.parametrize("fabric", ["efa", "erdma"])
def test_every_type_gives_what_its_job_asks_for(cluster: RunningCluster, fabric: str) -> None:
    for instance, row in jobs.load_project().facts.instances.types.items():
        if row.fabric != fabric:
            continue
        for number in range(2):
            node(cluster, f"n{number}", instance)
        node_names = bound(cluster, jobs.job("mpijob", fabric, "mpirun", instance=instance))
        assert {where for where, _ in node_names} == {"n0", "n1"}, (instance, node_names)
        cluster.clear()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vpc.amazonaws.com/efa": "16"}, "Insufficient vpc.amazonaws.com/efa"),
        ({"hugepages-2Mi": "0"}, "Insufficient hugepages-2Mi"),
        ({"nvidia.com/gpu": "7"}, "Insufficient nvidia.com/gpu"),
        ({"memory": "16Gi"}, "Insufficient memory"),
    ],
)
def test_a_node_without_enough(cluster: RunningCluster, changes: dict[str, str], reason: str) -> None:
    node(cluster, "n0", "p5.48xlarge", **changes)
    (_, cause), *_ = bound(cluster, jobs.job("mpijob", "efa", "mpirun"))
    assert reason in cause


def test_half_a_node_twice_is_still_one_pod_a_node(cluster: RunningCluster) -> None:
    node(cluster, "n0", "p5.48xlarge")
    first, second = bound(cluster, jobs.job("mpijob", "efa", "mpirun", gpus=4))
    assert first == ("n0", "")
    assert "didn't match pod anti-affinity rules" in second[1]


def test_a_job_stays_in_one_zone(cluster: RunningCluster) -> None:
    node(cluster, "n0", "p5.48xlarge", zone="a")
    node(cluster, "n1", "p5.48xlarge", zone="b")
    first, second = bound(cluster, jobs.job("trainjob", "efa", "torchrun"))
    assert first[0]
    assert "didn't match pod affinity rules" in second[1]


def test_another_type_is_not_taken(cluster: RunningCluster) -> None:
    node(cluster, "n0", "p5e.48xlarge")
    (_, reason), *_ = bound(cluster, jobs.job("pytorchjob", "efa", "torchrun"))
    assert "didn't match" in reason


@pytest.mark.parametrize("adapters", ["4", "32"])
def test_a_job_is_run_or_told_why_the_scheduler_does_not_place_it(
    cluster: RunningCluster, adapters: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`invoke job.run` with Debian's kubectl; nothing of the job is left in either case."""
    programs = unpacked.tree("kubectl", ("kubernetes-client",)) / "usr" / "bin"
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(Path(str(cluster.session.verify)).parent / "kubeconfig"))
    for name in ("n1", "n2"):
        node(cluster, name, "p5.48xlarge", **{RESOURCE["efa"]: adapters})
    job, folder = create.write_job(
        jobs.job_request("mpijob", "efa", "mpirun", name="j"), jobs.load_project(), str(tmp_path / "j")
    )
    ((_, template), _) = pods(job)
    template["spec"]["restartPolicy"] = "Never"
    batch_job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    (folder / "own.yaml").write_text(json.dumps({**batch_job, "spec": {"parallelism": 2, "template": template}}))
    runner = RunMethod(how="kubectl", file="own.yaml", object="jobs.batch", pods="job-name={name}")
    monkeypatch.setattr(job_run, "_run_method", lambda *_: runner)
    with operator_parts.operator(cluster, runs=True):
        if adapters == "4":
            with pytest.raises(job_run.JobEndedError, match=r"2 Insufficient vpc\.amazonaws\.com/efa"):
                job_run.run_job(folder, jobs.load_project(), job_run.JobRunOptions(limit=8), print)
        else:
            run_folder = job_run.run_job(folder, jobs.load_project(), job_run.JobRunOptions(limit=60), print)
            assert [(entry.how, entry.cleanup) for entry in record.load(run_folder)] == [("succeeded", "removed")]
    assert cluster.get(operator_parts.JOBS)["items"] == []
    assert cluster.get(operator_parts.PODS)["items"] == []
