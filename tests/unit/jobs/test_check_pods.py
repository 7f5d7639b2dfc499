"""What pods and containers get: devices, memory, networks and names."""

from pathlib import Path

import pytest

from tests.support.foreign_jobs import findings

POD = """
apiVersion: {api}
kind: {kind}
metadata: {{name: train}}
spec:
  {spec}
  template:
    metadata: {{annotations: {{{annotations}}}}}
    spec:
      {pod}
      volumes: [{volumes}]
      containers:
      - name: rank
        image: trainer
        command: [bash, -c, "torchrun --nnodes=2 --node_rank=$R --master_addr={address} --nproc_per_node=8 t.py"]
        {container}
        resources: {{limits: {{nvidia.com/gpu: 8{resource}}}}}
        volumeMounts: [{mounts}]
"""
NAMED = "replicas: 2\n  serviceName: ranks"
DEVICES = {
    "volumes": "{name: ib, hostPath: {path: /dev/infiniband}}",
    "mounts": "{name: ib, mountPath: /dev/infiniband}",
}


def pod_yaml(**texts: str) -> str:
    """Return a StatefulSet of two pods, with texts in the place of its parts."""
    defaults = {
        "api": "apps/v1",
        "kind": "StatefulSet",
        "spec": "replicas: 2",
        "annotations": "",
        "pod": "dnsPolicy: ClusterFirst",
        "volumes": "",
        "address": "$A",
        "container": "workingDir: /",
        "resource": "",
        "mounts": "",
    }
    return POD.format(**{**defaults, **texts})


def messages(folder: Path, rule: str, **texts: str) -> list[str]:
    return [finding.message for finding in findings(folder, rule, job_yaml=pod_yaml(**texts))]


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        (DEVICES, 1),
        ({**DEVICES, "container": "securityContext: {privileged: true}"}, 0),
        ({**DEVICES, "resource": ", rdma/hca: 1"}, 0),
        ({}, 0),
    ],
)
def test_devices_that_a_container_may_not_open(tmp_path: Path, texts: dict[str, str], count: int) -> None:
    lines = messages(tmp_path, "pod.rdma", **texts)
    assert [
        text.startswith("/dev/infiniband is mounted by its path, and the container is not privileged") for text in lines
    ] == [True] * count


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        ({"resource": ", nvidia.com/sriov_rdma_vf: 1"}, 1),
        ({"resource": ", nvidia.com/mlnxnics: 8"}, 1),
        ({"resource": ", nvidia.com/mlnxnics: 8", "annotations": "k8s.v1.cni.cncf.io/networks: sriov-net"}, 0),
        ({"resource": ", nvidia.com/mlnxnics: 8", "pod": "hostNetwork: true"}, 0),
        ({"resource": ", rdma/hca_shared_devices_a: 1"}, 0),
    ],
)
def test_functions_of_sriov_have_a_network(tmp_path: Path, texts: dict[str, str], count: int) -> None:
    assert len(messages(tmp_path, "pod.networks", **texts)) == count


@pytest.mark.parametrize(
    ("volume", "count"),
    [
        ("{name: shm, emptyDir: {medium: Memory}}", 0),
        ("{name: shm, emptyDir: {}}", 1),
        ("{name: shm, emptyDir: {sizeLimit: 64Gi}}", 1),
        ("{name: shm, persistentVolumeClaim: {claimName: shm}}", 0),
    ],
)
def test_shared_memory_on_a_disk(tmp_path: Path, volume: str, count: int) -> None:
    lines = messages(tmp_path, "shm.small", volumes=volume, mounts="{name: shm, mountPath: /dev/shm}")
    assert [text.startswith("/dev/shm is a folder on the node's disk") for text in lines] == [True] * count


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        ({"pod": "hostNetwork: true", "spec": NAMED}, 1),
        ({"pod": "hostNetwork: true", "spec": NAMED.replace("2", "1")}, 0),
        ({"pod": "hostNetwork: true\n      dnsPolicy: ClusterFirstWithHostNet", "spec": NAMED}, 0),
        ({"pod": "hostNetwork: true", "spec": "replicas: 2", "kind": "Deployment"}, 0),
    ],
)
def test_names_of_pods_in_the_hosts_network(tmp_path: Path, texts: dict[str, str], count: int) -> None:
    assert len(messages(tmp_path, "pod.names", **texts)) == count


def test_names_of_volcanos_pods_in_the_hosts_network(tmp_path: Path) -> None:
    """As in volcano-sh/volcano issue 778."""
    text = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: lm-mpi-job}
spec:
  plugins: {ssh: [], svc: []}
  tasks:
  - replicas: 2
    name: mpiworker
    template:
      spec:
        hostNetwork: true
        containers: [{name: w, image: w, resources: {limits: {nvidia.com/gpu: 8}}}]
"""
    assert len(findings(tmp_path, "pod.names", job_yaml=text)) == 1
    good = text.replace("hostNetwork: true", "hostNetwork: true\n        dnsPolicy: ClusterFirstWithHostNet")
    assert not findings(tmp_path, "pod.names", job_yaml=good)
    for alone in (text.replace("replicas: 2", "replicas: 1"), text.replace(", svc: []", "")):
        assert not findings(tmp_path, "pod.names", job_yaml=alone)


JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: pytorch}}
spec:
  network: {{{network}}}
  replicatedJobs:
  - name: workers
    template:
      spec:
        parallelism: 4
        template:
          spec:
            containers:
            - name: pytorch
              image: trainer
              env: [{{name: MASTER_ADDR, value: "{address}"}}]
              resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""


@pytest.mark.parametrize(
    ("address", "network", "is_bad"),
    [
        ("pytorch-workers-0-0.pytorch-workers", "enableDNSHostnames: true", True),
        ("pytorch-workers-0-0", "enableDNSHostnames: true", True),
        ("pytorch-workers-0-0.pytorch", "enableDNSHostnames: true", False),
        ("pytorch-workers-0-0.pytorch.train.svc.cluster.local", "enableDNSHostnames: true", False),
        ("pytorch-workers-0-0.ranks", "subdomain: ranks", False),
        ("pytorch-workers-0-0.pytorch", "subdomain: ranks", True),
        ("redis.pytorch", "enableDNSHostnames: true", False),
        ("$(FIRST)", "enableDNSHostnames: true", False),
    ],
)
def test_an_address_that_no_pod_has(tmp_path: Path, address: str, network: str, is_bad: bool) -> None:
    """As in kubernetes-sigs/jobset issue 603."""
    text = JOBSET.format(address=address, network=network)
    lines = [row.message for row in findings(tmp_path, "rendezvous.pod-name", job_yaml=text)]
    assert [message.startswith(f"{address} is no name of the first pod") for message in lines] == [True] * is_bad


def test_an_address_with_another_service_than_the_pods(tmp_path: Path) -> None:
    assert not messages(tmp_path, "rendezvous.pod-name", spec=NAMED, address="train-0.ranks:29500")
    assert messages(tmp_path, "rendezvous.pod-name", spec=NAMED, address="train-0.train:29500")


@pytest.mark.parametrize(("size", "count"), [(1, 1), (2, 0)])
def test_a_server_on_the_pods_of_its_group(tmp_path: Path, size: int, count: int) -> None:
    text = f"""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: vllm}}
spec:
  leaderWorkerTemplate:
    size: {size}
    workerTemplate:
      spec:
        containers:
        - name: leader
          image: vllm
          command: [bash, -c, "ray start --head; vllm serve m --tensor-parallel-size 8 --pipeline-parallel-size 2"]
          resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""
    assert len(findings(tmp_path, "ranks.servers", job_yaml=text)) == count


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("docker run --gpus all vllm/vllm-openai --model m --tensor-parallel-size 2", 1),
        ("docker run --gpus all vllm/vllm-openai --model m --tensor-parallel-size=1", 0),
        ("docker run --gpus all --ipc=host vllm/vllm-openai --model m --tensor-parallel-size 2", 0),
        ("docker run --gpus all --shm-size 10g vllm/vllm-openai --model m -tp 2", 0),
        ("docker run --gpus all trainer torchrun --nproc_per_node=8 train.py", 1),
        ("docker run --gpus all trainer python train.py", 0),
    ],
)
def test_shared_memory_of_a_server_in_a_container(tmp_path: Path, command: str, count: int) -> None:
    """As in vllm-project/vllm issue 1710."""
    assert len(findings(tmp_path, "shm.small", job_sh=f"#!/bin/bash\n{command}\n")) == count


@pytest.mark.parametrize(("more", "count"), [("", 1), ("ipc: host", 0)])
def test_shared_memory_of_a_server_in_a_compose_file(tmp_path: Path, more: str, count: int) -> None:
    text = f"""
services:
  vllm:
    image: vllm/vllm-openai
    command: [--model, m, --tensor-parallel-size, "4"]
    {more or "restart: always"}
    deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, count: all, capabilities: [gpu]}}]}}}}}}
"""
    assert len(findings(tmp_path, "shm.small", compose_yaml=text)) == count


CONNECTOR = """vllm serve m --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'"""


@pytest.mark.parametrize(
    ("transports", "command", "count"),
    [
        ("rc,ud", CONNECTOR, 1),
        ("rc,cuda_copy,cuda_ipc", CONNECTOR, 0),
        ("all", CONNECTOR, 0),
        ("^tcp", CONNECTOR, 0),
        ("tcp", CONNECTOR.replace("}'", ',"kv_buffer_device":"cpu"}' + "'"), 0),
        ("tcp", "python -m sglang.launch_server --disaggregation-transfer-backend nixl", 1),
        ("tcp", "python -m sglang.launch_server --disaggregation-transfer-backend mooncake", 0),
        ("tcp", "mpirun -np 16 ./all_reduce_perf -g 1", 0),  # whose buffers on GPUs are NCCL's
    ],
)
def test_transports_for_memory_of_gpus(tmp_path: Path, transports: str, command: str, count: int) -> None:
    text = f"#!/bin/bash\nexport UCX_TLS={transports}\n{command}\n"
    assert len(findings(tmp_path, "transfer.transports", job_sh=text)) == count
