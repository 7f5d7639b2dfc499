"""Foreign jobs whose containers or machines do not get the network's devices, or not all of them."""

from pathlib import Path

import pytest

from rdma_images.jobs.check import check_files

DIGEST = f"registry.example/trainer@sha256:{'7c' * 32}"
SKYPILOT = """num_nodes: {nodes}
resources: {{infra: {infra}, accelerators: {gpu}, network_tier: best}}
{config}
run: torchrun train.py
"""


def findings(path: Path, rule: str, text: str) -> list[tuple[str, str]]:
    """Return what a rule finds in a file, with its severity."""
    path.write_text(text)
    return [(finding.severity, finding.message) for finding in check_files([path]).findings if finding.rule == rule]


@pytest.mark.parametrize(
    ("changes", "interfaces"),
    [
        ({}, 32),
        ({"gpu": "A100-80GB:8"}, 4),
        ({"nodes": "1"}, 0),
        ({"infra": "k8s"}, 0),
        ({"infra": "gcp"}, 0),
        ({"gpu": "L4:1"}, 0),
        ({"gpu": "$(GPU):8"}, 0),
        ({"config": "config: {aws: {use_internal_ips: true}}"}, 0),
        ({"config": "config: {aws: {use_internal_ips: Yes}}"}, 0),
        ({"config": "config: {aws: {use_internal_ips: false}}"}, 32),
    ],
)
def test_machines_with_public_addresses_get_one_adapter(
    tmp_path: Path, changes: dict[str, str], interfaces: int
) -> None:
    text = SKYPILOT.format(**{"nodes": "2", "infra": "aws/us-east-1", "gpu": "H100:8", "config": "", **changes})
    sentence = f"SkyPilot gives a machine with a public address 1 of its {interfaces} EFA interfaces"
    assert findings(tmp_path / "job.yaml", "skypilot.internal", text) == ([("warning", sentence)] if interfaces else [])


@pytest.mark.parametrize(
    ("changes", "interfaces"),
    [
        ({"tier": ""}, 32),
        ({"tier": ", network_tier: standard"}, 32),
        ({"tier": ", network_tier: best"}, 0),
        ({"tier": ", network_tier: BEST"}, 0),
        ({"tier": ", network_tier: $(TIER)"}, 0),
        ({"tier": "", "nodes": "1"}, 0),
        ({"tier": "", "infra": "k8s"}, 0),
        ({"tier": "", "gpu": "L4:1"}, 0),
        ({"tier": ", instance_type: p5.48xlarge"}, 32),
        ({"tier": ", instance_type: g6.8xlarge", "gpu": "L4:1"}, 1),
    ],
)
def test_machines_of_a_usual_tier_get_no_adapter(tmp_path: Path, changes: dict[str, str], interfaces: int) -> None:
    usual = {"nodes": "2", "infra": "aws/us-east-1", "gpu": "H100:8", "config": "", **changes}
    text = SKYPILOT.replace(", network_tier: best", "{tier}").format(**usual)
    sentence = f"without network_tier: best a machine gets none of its {interfaces} EFA interfaces: NCCL takes TCP"
    assert findings(tmp_path / "job.yaml", "skypilot.efa", text) == ([("error", sentence)] if interfaces else [])
    if "k8s" not in text:
        assert findings(tmp_path / "job.yaml", "efa.count", text) == []


@pytest.mark.parametrize(
    ("command", "problems"),
    [
        ("--gpus all", [("warning", "the container gets no RDMA device, and NCCL takes TCP")]),
        (
            "--gpus all --device=/dev/infiniband",
            [("warning", "locked memory stays limited: no queue pair can be created")],
        ),
        ("--gpus all -e NCCL_IB_DISABLE=1", []),
        ("--gpus all -e NCCL_NET=Socket", []),
    ],
)
def test_a_container_of_several_nodes(tmp_path: Path, command: str, problems: list[tuple[str, str]]) -> None:
    for nodes, expected in ((2, problems), (1, [])):
        text = f"#!/bin/sh\ndocker run --network=host {command} {DIGEST} torchrun --nnodes={nodes} train.py\n"
        assert findings(tmp_path / "run.sh", "docker.devices", text) == expected


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ("-e NCCL_IB_HCA=mlx5_0", ["the container gets no RDMA device, and NCCL takes TCP"]),
        ("-e NCCL_NET=IB", ["the container gets no RDMA device, and NCCL takes TCP"]),
        ("-e NCCL_IB_HCA=mlx5 --device=/dev/infiniband", ["locked memory stays limited: no queue pair can be created"]),
        ("-e NCCL_IB_HCA=mlx5 --device=/dev/infiniband --ulimit memlock=-1", []),
        ("-e NCCL_IB_HCA=mlx5 -e NVIDIA_MOFED=enabled --ulimit memlock=-1", []),
        ("-e NCCL_IB_HCA=mlx5 -e NCCL_IB_DISABLE=1", []),
        ("-e NCCL_IB_HCA=mlx5 --privileged", []),
        ("-e NCCL_IB_GID_INDEX=3", []),
    ],
)
def test_a_container_for_infiniband(tmp_path: Path, options: str, problems: list[str]) -> None:
    text = f"#!/bin/sh\ndocker run --gpus all {options} {DIGEST} train\n"
    assert [problem for _, problem in findings(tmp_path / "run.sh", "docker.devices", text)] == problems


@pytest.mark.parametrize(
    ("infra", "image", "named"),
    [
        ("aws/us-east-2", "ami-062ddd90fb6f8267a", 0),
        ("gcp", "projects/deeplearning-platform-release/global/images/common-cu121", 0),
        ("oci", "skypilot:gpu-ubuntu-2204", 0),
        ("k8s", "skypilot:gpu-ubuntu-2204", 0),
        ("aws", "docker:registry.example/trainer:1", 1),
        ("k8s", "registry.example/trainer:1", 1),
        ("k8s", "docker:registry.example/trainer:1", 1),
    ],
)
def test_an_image_of_a_machine_has_no_digest(tmp_path: Path, infra: str, image: str, named: int) -> None:
    text = f"resources: {{infra: {infra}, accelerators: H100:8, image_id: '{image}'}}\nrun: torchrun train.py\n"
    sentence = "registry.example/trainer:1 has no digest: its tag can move while the job starts"
    assert findings(tmp_path / "job.yaml", "image.tag", text) == [("warning", sentence)] * named
