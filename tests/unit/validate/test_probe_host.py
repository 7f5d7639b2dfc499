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
from rdma_images.inspection.machine import Devices, RdmaDevice
from rdma_images.inspection.measurements import Measured, MeasuredPackages, probe_names
from rdma_images.validate import expected_fabric, probe_host, run_probes
from rdma_images.validate.probes import all_reduce, gpus
from rdma_images.validate.validate_image import validate


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
        probe_host.measure("ssh://nohost.invalid", ("device",))


def test_a_host_that_measures_nothing_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "kubectl", "echo 'error: pods \"p\" not found' >&2; exit 1", monkeypatch)
    with pytest.raises(RdmaImagesError, match=r'p cannot be measured: .*pods "p" not found.*\ncheck the name'):
        probe_host.measure("kubectl://p", ("device",))


def test_what_speaks_of_the_fabric_is_measured_for_gpus_too() -> None:
    assert {"devices", "packages"} <= set(probe_names("gpu"))
    device = RdmaDevice(driver="efa", state="", mtu=0, p2p="")
    with_device = Measured(devices=Devices.model_construct(rdma={"rdmap0s0": device}))
    installed = Measured(packages=MeasuredPackages(wheels={}, dpkg={}, rpm={}, efa_installer="1.50.0"))
    for measured in (with_device, installed):
        subject = probe_host.host_config("", "local://", measured)
        assert expected_fabric.expected_image(subject, measured, None).fabric == "efa"


def test_this_machine_is_measured_as_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_probes, "PYTHONS", (sys.executable,))
    measured = probe_host.measure("local://", ("device",))
    assert measured.lost == ()
    assert measured.devices
    assert measured.devices.huge_pages.bytes > 0
    assert measured.missing["tree"] == "tree was not measured for device"


def test_the_log_of_an_all_reduce_goes_where_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(tmp_path / "elsewhere"))
    worker = "import os; print('ROWS [[]]' if 'NCCL_DEBUG_FILE' not in os.environ else 'to a file')"
    monkeypatch.setattr(all_reduce, "WORKER", worker)
    monkeypatch.setattr(all_reduce, "program", lambda: "torch")
    assert all_reduce.all_reduce(1, {}, (4,))["rows"] == [[[]]]


def test_each_process_is_a_node_of_its_own_and_a_setting_can_be_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_NET", "Libfabric")
    worker = "import json, os; print('ROWS ' + json.dumps([os.environ.get('NCCL_NET'), os.environ['NCCL_HOSTID']]))"
    monkeypatch.setattr(all_reduce, "WORKER", worker)
    monkeypatch.setattr(all_reduce, "program", lambda: "torch")
    run = all_reduce.all_reduce(2, {"NCCL_NET": None, "FI_PROVIDER": "tcp"}, (4,), nodes=2)
    assert run["rows"] == [[None, "node0"], [None, "node1"]]
    assert run["settings"] == {"NCCL_NET": None, "FI_PROVIDER": "tcp", "NCCL_HOSTID": "node0,node1"}


def test_nccl_tests_rows_are_whole_beside_nccls_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the real program does it: half a row before it measures, half after, and NCCL's lines wherever they go."""
    perf = (
        'log="${NCCL_DEBUG_FILE:-/dev/stdout}"; printf "     4194304       1048576     float     sum      -1"; '
        "echo libfabric traces >&2; echo 'vm:1:1 [0] NCCL INFO Channel 00/0' >> \"$log\"; "
        'echo "    35.63  117.72  117.72       2    36.01  116.00  116.00       1"'
    )
    program(tmp_path, "all_reduce_perf", perf, monkeypatch)
    program(tmp_path, "mpirun", "exec all_reduce_perf", monkeypatch)
    monkeypatch.setattr(all_reduce, "program", lambda: str(tmp_path / "all_reduce_perf"))
    run = all_reduce.all_reduce(2, {}, (1 << 22,), nodes=2)
    assert run["rows"] == [[{"bytes": 1 << 22, "wrong": 3, "busbw": 117.72}]]
    assert "NCCL INFO Channel" in run["log"]
    assert "libfabric traces" in run["log"]


@pytest.mark.parametrize(
    ("count", "insists", "plugin", "device", "runs"),
    [
        (2, "Libfabric", "/p", False, {"default": gpus.WITHOUT_REFUSAL, "two-nodes": gpus.OVER_TCP, "refusal": {}}),
        (8, "Libfabric", "/p", True, {"default": {}, "two-nodes": {}}),
        (2, "", "/p", False, {"default": {}, "two-nodes": gpus.OVER_TCP}),
        (2, "IB", "", False, {"default": gpus.WITHOUT_REFUSAL, "refusal": {}}),
        (2, "IB", "", True, {"default": {}, "two-nodes": {}}),
        (2, "", "", False, {"default": {}}),
        (1, "IB", "", False, {"refusal": {"NCCL_TESTS_DEVICE": "0"}}),
        (0, "Libfabric", "/p", False, {}),
    ],
)
def test_what_is_run_follows_from_the_image_and_the_machine(
    count: int, insists: str, plugin: str, device: bool, runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_reduce, "all_reduce", lambda _world, settings, _sizes, **_: settings)
    assert gpus.possible_runs(count, {"insists": insists, "plugin": plugin, "device": device}) == runs


def test_what_takes_long_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: SimpleQueue[str] = SimpleQueue()
    spoken: list[str] = []

    def slow(*_: object) -> Measured:
        while not (spoken and spoken[-1].startswith("waiting")):
            spoken.append(lines.get(timeout=60))
        raise RdmaImagesError("not reached")

    monkeypatch.setattr(probe_host, "measure", slow)
    monkeypatch.setattr(
        "rdma_images.validate.validate_image.report_waiting", functools.partial(progress.report_waiting, interval=0.1)
    )
    with pytest.raises(RdmaImagesError, match="not reached"):
        validate("", None, host="ssh://far", progress=lines.put)
    assert spoken[-1].startswith("waiting for what ssh://far measures, ")
