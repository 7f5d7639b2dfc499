"""What an API server and a scheduler lack: controllers, a kubelet, garbage collection.

It is Kubernetes' own Job: this API server crashes on objects of resources that are defined in it, because Go 1.19 is
newer than a library of its time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rdma_images.core.progress import report_waiting
from tests.e2e.kube_parts import RunningCluster

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
LABEL = "job-name"


@contextmanager
def operator(cluster: RunningCluster, runs: bool) -> Iterator[None]:
    """Act as the operator while the block runs; with `runs`, bound pods run and succeed."""

    def work(_: str) -> None:
        for job in cluster.get(JOBS)["items"]:
            _work(cluster, job, runs)

    with report_waiting(work, str, 0.2):  # which calls it as long
        yield


def _work(cluster: RunningCluster, job: Any, runs: bool) -> None:
    name = job["metadata"]["name"]
    pods = cluster.get(f"{PODS}?labelSelector={LABEL}={name}")["items"]
    if "deletionTimestamp" in job["metadata"]:
        for pod in pods:
            cluster.session.delete(f"{cluster.url}{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
        cluster.patch(f"{JOBS}/{name}", {"metadata": {"finalizers": []}})
    elif not pods:
        template = job["spec"]["template"]
        labels = {**template["metadata"]["labels"], LABEL: name}
        for number in range(job["spec"]["parallelism"]):
            cluster.post(PODS, {"metadata": {"name": f"{name}-{number}", "labels": labels}, "spec": template["spec"]})
    elif runs and all(pod["spec"].get("nodeName") for pod in pods):
        if pods[0]["status"]["phase"] == "Running":
            condition = {"type": "Complete", "status": "True"}
            cluster.patch(f"{JOBS}/{name}/status", {"status": {"conditions": [condition]}})
        for pod in pods:
            cluster.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": "Running"}})
