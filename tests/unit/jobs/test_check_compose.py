"""The check of jobs in Docker's compose files."""

import json
from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.jobs import check

HEAD = "services:\n  db:\n    image: postgres:16\n  train:\n    image: team/train:1\n"
GPUS = "    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 4, capabilities: [gpu]}]}}}\n"
EFA = "    environment: [FI_PROVIDER=efa]\n"
DEVICES = "    devices: ['/dev/infiniband:/dev/infiniband']\n"


def fixes_in(tmp_path: Path, text: str) -> dict[str, str]:
    """Return the fixes of what is found in a compose file, by rule."""
    path = tmp_path / "compose.yaml"
    path.write_text(text)
    return {finding.rule: finding.fix for finding in check.check([path]).findings}


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


def test_one_without_gpus_is_no_job(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text("services: {db: {image: postgres, environment: [A=b]}, web: null, list: [1]}\n")
    with pytest.raises(RefusedError, match="no job in it"):
        check.check([path])
