"""Pods and machines: who cannot be reached is a sentence, and every tier learns which fabric it is about."""

import os
import sys
from pathlib import Path

import pytest

from rdma_images.errors import RdmaImagesError
from rdma_images.validate import elsewhere, fabric, probing
from rdma_images.validate.measured import Devices, Measured, Packages, RdmaDevice
from validators.probes import gpus


def program(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a shell script called `name` first on the PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_host_that_ssh_cannot_reach_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "ssh: Could not resolve hostname nohost.invalid"
    program(tmp_path, "ssh", f"echo '{said}' >&2; exit 255", monkeypatch)
    with pytest.raises(RdmaImagesError, match=rf"ssh://nohost.invalid cannot be reached: {said}$"):
        elsewhere.measure("ssh://nohost.invalid", ("device",))


def test_a_host_that_measures_nothing_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "kubectl", "echo 'error: pods \"p\" not found' >&2; exit 1", monkeypatch)
    with pytest.raises(RdmaImagesError, match=r'kubectl://p cannot be measured: .*pods "p" not found'):
        elsewhere.measure("kubectl://p", ("device",))


def test_what_speaks_of_the_fabric_is_measured_for_gpus_too() -> None:
    assert {"devices", "packages"} <= set(elsewhere.PROBES["gpu"])
    device = RdmaDevice(driver="efa", state="", mtu=0, p2p="")
    with_device = Measured(devices=Devices.model_construct(rdma={"rdmap0s0": device}))
    installed = Measured(packages=Packages(wheels={}, dpkg={}, rpm={}, efa_installer="1.50.0"))
    for found in (with_device, installed):
        subject = elsewhere.subject("", "local://", found)
        assert fabric.expected(subject, found, None).fabric == "efa"


def test_this_machine_is_measured_as_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PYTHONS", (sys.executable,))
    found = elsewhere.measure("local://", ("device",))
    assert found.lost == ()
    assert found.devices.huge_pages.bytes > 0
    assert found.missing["tree"] == "tree was not measured for device"


def test_the_log_of_an_all_reduce_goes_where_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(tmp_path / "elsewhere"))
    worker = "import os; print('ROWS [[]]' if 'NCCL_DEBUG_FILE' not in os.environ else 'to a file')"
    monkeypatch.setattr(gpus, "WORKER", worker)
    assert gpus.all_reduce(1, {}, (4,))["rows"] == [[[]]]
