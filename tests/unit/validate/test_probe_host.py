"""Pods and machines: who cannot be reached is a sentence, and every tier learns which fabric it is about."""

import functools
import os
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from rdma_images.core import progress
from rdma_images.core.errors import RdmaImagesError
from rdma_images.inspection.machine import AllReduceRun, Devices, RdmaDevice
from rdma_images.inspection.measurements import Measured, MeasuredPackages, probe_names
from rdma_images.preflight import all_reduce
from rdma_images.validate import expected_fabric, probe_host, run_probes
from rdma_images.validate.probes import gpus
from rdma_images.validate.validate_image import validate
from tests.support import fake_nccl


def program(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a shell script called `name` first on the PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_host_that_ssh_cannot_reach_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complaint = "ssh: Could not resolve hostname nohost.invalid"
    program(tmp_path, "ssh", f"echo '{complaint}' >&2; exit 255", monkeypatch)
    with pytest.raises(RdmaImagesError, match=rf"ssh://nohost.invalid cannot be reached: {complaint}\ncheck the name"):
        probe_host.measure_host("ssh://nohost.invalid", ("device",))


def test_a_host_that_measures_nothing_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "kubectl", "echo 'error: pods \"p\" not found' >&2; exit 1", monkeypatch)
    with pytest.raises(RdmaImagesError, match=r'p cannot be measured: .*pods "p" not found.*\ncheck the name'):
        probe_host.measure_host("kubectl://p", ("device",))


def test_what_speaks_of_the_fabric_is_measured_for_gpus_too() -> None:
    assert {"devices", "packages"} <= set(probe_names("gpu"))
    device = RdmaDevice(driver="efa", state="", mtu=0, p2p="")
    with_device = Measured(devices=Devices.model_construct(rdma={"rdmap0s0": device}))
    installed = Measured(packages=MeasuredPackages(wheels={}, dpkg={}, rpm={}, efa_installer="1.50.0"))
    for measured in (with_device, installed):
        subject = probe_host.host_config("", "local://", measured)
        assert expected_fabric.image_expectations(subject, measured, None).fabric == "efa"


def test_this_machine_is_measured_as_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_probes, "PYTHONS", (sys.executable,))
    measured = probe_host.measure_host("local://", ("device",))
    assert measured.failed == ()
    assert measured.devices
    assert measured.devices.huge_pages.bytes > 0
    assert measured.missing["tree"] == "tree was not measured for device"


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the path of a library in place of NCCL, beside one in place of CUDA's driver."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nccl.folder()))
    monkeypatch.setattr(all_reduce, "MESSAGE_BYTES", 1 << 16)
    return str(fake_nccl.folder() / "libnccl.so.2")


def test_two_nodes_of_one_gpu_sum_up(nccl: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_NET", "Libfabric")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert [node["CUDA_VISIBLE_DEVICES"] for node in gpus.two_nodes(1)] == ["3", "3"]
    run = AllReduceRun.model_validate(
        gpus.all_reduce(nccl, {"NCCL_NET": None, "FI_PROVIDER": "tcp"}, gpus.two_nodes(1))
    )
    assert run.settings == {"NCCL_NET": None, "FI_PROVIDER": "tcp", "NCCL_HOSTID": "node0,node1"}
    assert [answer.is_right for answer in run.answers] == [True, True]
    assert "NCCL INFO" in run.log


def test_the_gpus_of_one_node_sum_up(nccl: str) -> None:
    run = AllReduceRun.model_validate(gpus.all_reduce(nccl, {}, [{}], 2))
    assert [answer.is_right for answer in run.answers] == [True, True]
    assert run.settings == {}


@pytest.mark.usefixtures("nccl")
def test_an_nccl_that_cannot_be_loaded_is_an_error_of_each_process() -> None:
    run = AllReduceRun.model_validate(gpus.all_reduce("/absent/libnccl.so.2", {}, [{}], 2))
    assert all(answer.error for answer in run.answers)


@pytest.mark.parametrize(
    ("count", "required_network", "plugin", "device", "runs"),
    [
        (2, "Libfabric", "/p", False, {"default": gpus.WITHOUT_REFUSAL, "two-nodes": gpus.OVER_TCP, "refusal": {}}),
        (8, "Libfabric", "/p", True, {"default": {}, "two-nodes": {}}),
        (2, "", "/p", False, {"default": {}, "two-nodes": gpus.OVER_TCP}),
        (2, "IB", "", False, {"default": gpus.WITHOUT_REFUSAL, "refusal": {}}),
        (2, "IB", "", True, {"default": {}, "two-nodes": {}}),
        (2, "", "", False, {"default": {}}),
        (1, "IB", "", False, {"refusal": {}}),
        (0, "Libfabric", "/p", False, {}),
    ],
)
def test_what_is_run_follows_from_the_image_and_the_machine(
    count: int, required_network: str, plugin: str, device: bool, runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "all_reduce", lambda _path, settings, *_: settings)
    requested = {"required_network": required_network, "plugin": plugin, "device": device}
    assert gpus.possible_runs("/nccl", count, requested) == runs


def test_what_takes_long_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: SimpleQueue[str] = SimpleQueue()
    spoken: list[str] = []

    def slow(*_: object) -> Measured:
        while not (spoken and spoken[-1].startswith("waiting")):
            spoken.append(lines.get(timeout=60))
        raise RdmaImagesError("not reached")

    monkeypatch.setattr(probe_host, "measure_host", slow)
    monkeypatch.setattr(
        "rdma_images.validate.validate_image.report_waiting", functools.partial(progress.report_waiting, interval=0.1)
    )
    with pytest.raises(RdmaImagesError, match="not reached"):
        validate("", None, host="ssh://far", progress=lines.put)
    assert spoken[-1].startswith("waiting for what ssh://far measures, ")
