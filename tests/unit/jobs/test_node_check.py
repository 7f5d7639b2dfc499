"""The whole check of a node before a job's command, on trees of the kernel's files."""

from pathlib import Path

import pytest

from rdma_images.jobs.node import finding
from tests.support.node_files import run_check, write_device, write_file


def test_a_machine_without_hardware_is_no_bad_node(tmp_path: Path) -> None:
    (line,) = run_check(tmp_path, "--fabric=efa", "--adapters=4", "--gpus=8")
    assert line.startswith("warning hardware: neither a GPU nor an RDMA device")


def test_a_node_has_its_name_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_NODE", "ip-10-0-1-17.ec2.internal")
    assert finding.node_name() == "ip-10-0-1-17.ec2.internal"


def test_a_good_node_says_nothing(tmp_path: Path) -> None:
    for number in range(4):
        write_device(tmp_path, f"rdmap{number}", "efa")
    write_file(tmp_path / "dev/nvidia0")
    assert run_check(tmp_path, "--fabric=efa", "--adapters=4", "--gpus=1") == []
