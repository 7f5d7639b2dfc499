"""The check of jobs in Docker's compose files."""

import json
from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.jobs import check

HEAD = f"services:\n  db:\n    image: postgres:16\n  train:\n    image: team/train@sha256:{'5e' * 32}\n"
GPUS = (
    "    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 4, capabilities: [gpu]}]}}}\n"
    "    ipc: host\n"
)
EFA = "    environment: [FI_PROVIDER=efa]\n"
DEVICES = "    devices: ['/dev/infiniband:/dev/infiniband']\n"


def fixes_in(tmp_path: Path, text: str) -> dict[str, str]:
    """Return the fixes of what is found in a compose file, by rule."""
    path = tmp_path / "compose.yaml"
    path.write_text(text)
    return {finding.rule: finding.fix for finding in check.check_files([path]).findings}


@pytest.mark.parametrize(
    ("service", "fix"),
    [
        (GPUS + EFA, "add devices: [/dev/infiniband]"),
        ("    gpus: all\n    environment: {FI_PROVIDER: efa}\n", "add devices: [/dev/infiniband]"),
        (GPUS + EFA + DEVICES, "add ulimits: {memlock: -1}, or cap_add: [IPC_LOCK]"),
        (DEVICES + EFA, "add ulimits: {memlock: -1}, or cap_add: [IPC_LOCK]"),
        (GPUS + EFA + DEVICES + "    ulimits: {memlock: -1}\n", ""),
        (GPUS + EFA + DEVICES + "    ulimits:\n      memlock: {soft: -1, hard: -1}\n", ""),
        (GPUS + EFA + DEVICES + "    cap_add: [CAP_IPC_LOCK]\n", ""),
        (GPUS + EFA + "    privileged: true\n", ""),
        (GPUS + EFA + "    extends: {file: common.yaml, service: rdma}\n", ""),
        (GPUS + "    environment: [NCCL_DEBUG=INFO]\n", ""),
    ],
)
def test_devices_and_locked_memory(tmp_path: Path, service: str, fix: str) -> None:
    assert fixes_in(tmp_path, HEAD + service) == ({"docker.devices": fix} if fix else {})


def test_what_a_merge_key_brings_counts(tmp_path: Path) -> None:
    common = f"x-rdma: &rdma\n{DEVICES}    ulimits: {{memlock: -1}}\n"
    assert fixes_in(tmp_path, f"{common}{HEAD}    <<: *rdma\n{GPUS}{EFA}") == {}


def test_its_variables_are_checked_as_any_jobs(tmp_path: Path) -> None:
    text = f"{HEAD}{GPUS}{DEVICES}    cap_add: [ALL]\n    environment: {{FI_PROVIDER: efa, NCCL_SOCKET_IFNAME: lo}}\n"
    assert list(fixes_in(tmp_path, text)) == ["environment.harmful"]


@pytest.mark.parametrize("command", ["torchrun --nproc_per_node=8 train.py", ["torchrun", "--nproc-per-node=8"]])
def test_more_ranks_than_gpus(tmp_path: Path, command: object) -> None:
    service = f"{HEAD}{GPUS}    command: {json.dumps(command)}\n"
    assert fixes_in(tmp_path, service) == {"ranks.gpus": "start 4, or ask for 8 GPUs"}


@pytest.mark.parametrize("address", ["--master_addr=localhost", "--rdzv-endpoint 127.0.0.1:29500"])
def test_an_address_that_is_each_containers_own(tmp_path: Path, address: str) -> None:
    service = f"{HEAD}{GPUS}    command: torchrun --nnodes=2 --node-rank=$RANK {address} train.py\n"
    expected = {"rendezvous.address": "write the first node's name", "docker.devices": "add devices: [/dev/infiniband]"}
    assert fixes_in(tmp_path, service) == expected
    assert fixes_in(tmp_path, service.replace("--nnodes=2", "--nnodes=1")) == {}
    sharing_host = service + "    network_mode: host\n"
    sharing_host += sharing_host.partition("postgres:16\n")[2].replace("train:", "other:", 1)
    assert fixes_in(tmp_path, sharing_host) == {}


def test_an_image_by_tag(tmp_path: Path) -> None:
    by_tag = (HEAD + GPUS).replace(f"@sha256:{'5e' * 32}", ":1")
    assert fixes_in(tmp_path, by_tag) == {"image.tag": "name the image by its digest, @sha256:…"}
    assert fixes_in(tmp_path, f"{by_tag}    build: .\n") == {}  # the tag is what the build gives


def test_one_without_gpus_is_no_job(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text("services: {db: {image: postgres, environment: [A=b]}, web: null, list: [1]}\n")
    with pytest.raises(RefusedError, match="no job in it"):
        check.check_files([path])
