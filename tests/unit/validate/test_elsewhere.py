"""Pods and machines: who cannot be reached is a sentence, and every tier learns which fabric it is about."""

import functools
import os
import sys
import venv
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from rdma_images.core import progress
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.inspection.machine import Devices, RdmaDevice
from rdma_images.inspection.measurements import Measured, MeasuredPackages, probes_of
from rdma_images.validate import FOLDER, elsewhere, fabric, probing, validate
from rdma_images.validate.probes import allreduce, gpus


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
        elsewhere.measure("ssh://nohost.invalid", ("device",))


def test_an_environment_is_measured_with_its_packages_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is active, and of this machine only the folders of its libraries are looked into."""
    environment, system = tmp_path / "training", tmp_path / "usr"
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "of_the_team-1.2.dist-info").mkdir()
    (packages / "of_the_team-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: of-the-team\nVersion: 1.2\n"
    )
    for folder in (environment, system, tmp_path / "home"):
        folder.mkdir(exist_ok=True)
        (folder / "libnccl.so.2").write_bytes(b"\x7fELF")
    monkeypatch.setattr(elsewhere, "SYSTEM", (str(system),))
    measured = elsewhere.measure(f"{FOLDER}{environment}", ("static",))
    assert measured.tree
    assert measured.packages
    libraries = [path for path in measured.tree.files.libraries if path.endswith("libnccl.so.2")]
    assert libraries == [f"{environment}/libnccl.so.2", f"{system}/libnccl.so.2"]
    assert elsewhere.subject("", "", measured).environment["PATH"].startswith(f"{environment}/bin:")
    assert "1.2" in {version for wheels in measured.packages.wheels.values() for version in wheels.values()}


def test_a_folder_without_python_is_no_environment(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"no bin/python3\nname a conda or virtual environment"):
        elsewhere.measure(f"{FOLDER}{tmp_path}", ("static",))


@pytest.mark.parametrize(
    ("text", "mode", "complaint"),
    [
        ("#!/bin/sh\necho libpython3.8.so.1.0: no such file >&2; exit 1", 0o755, "ended with 1: libpython3.8.so.1.0"),
        ("#!/bin/sh\necho python 3.6.8 is older than 3.8 >&2; exit 1", 0o755, "python 3.6.8 is older than 3.8"),
        ("#!/absent/interpreter", 0o755, "bin/python3 cannot be started: No such file"),
        ("", 0o644, "bin/python3 cannot be started: Permission denied"),
    ],
)
def test_no_other_python_answers_for_an_environment(
    text: str, mode: int, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "my envs" / "training" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.write_text(text)
    python.chmod(mode)
    monkeypatch.setattr(probing, "PYTHONS", (*probing.PYTHONS, sys.executable))
    with pytest.raises(RdmaImagesError, match=complaint):
        elsewhere.measure(f"{FOLDER}{python.parents[1]}", ("static",))


def test_a_dangling_python_of_an_environment_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to("/absent/python3")
    with pytest.raises(RdmaImagesError, match="python3 is a link to nothing"):
        elsewhere.measure(f"{FOLDER}{tmp_path}", ("static",))


def test_an_environment_is_measured_without_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "training", symlinks=True)
    monkeypatch.delenv("PATH")
    monkeypatch.setattr(elsewhere, "SYSTEM", ())
    assert elsewhere.measure(f"{FOLDER}{tmp_path}/training", ("static",)).system


def test_a_host_that_measures_nothing_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "kubectl", "echo 'error: pods \"p\" not found' >&2; exit 1", monkeypatch)
    with pytest.raises(RdmaImagesError, match=r'p cannot be measured: .*pods "p" not found.*\ncheck the name'):
        elsewhere.measure("kubectl://p", ("device",))


def test_what_speaks_of_the_fabric_is_measured_for_gpus_too() -> None:
    assert {"devices", "packages"} <= set(probes_of("gpu"))
    device = RdmaDevice(driver="efa", state="", mtu=0, p2p="")
    with_device = Measured(devices=Devices.model_construct(rdma={"rdmap0s0": device}))
    installed = Measured(packages=MeasuredPackages(wheels={}, dpkg={}, rpm={}, efa_installer="1.50.0"))
    for measured in (with_device, installed):
        subject = elsewhere.subject("", "local://", measured)
        assert fabric.expected(subject, measured, None).fabric == "efa"


def test_this_machine_is_measured_as_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PYTHONS", (sys.executable,))
    measured = elsewhere.measure("local://", ("device",))
    assert measured.lost == ()
    assert measured.devices
    assert measured.devices.huge_pages.bytes > 0
    assert measured.missing["tree"] == "tree was not measured for device"


def test_the_log_of_an_all_reduce_goes_where_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(tmp_path / "elsewhere"))
    worker = "import os; print('ROWS [[]]' if 'NCCL_DEBUG_FILE' not in os.environ else 'to a file')"
    monkeypatch.setattr(allreduce, "WORKER", worker)
    monkeypatch.setattr(allreduce, "program", lambda: "torch")
    assert allreduce.all_reduce(1, {}, (4,))["rows"] == [[[]]]


def test_each_process_is_a_node_of_its_own_and_a_setting_can_be_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_NET", "Libfabric")
    worker = "import json, os; print('ROWS ' + json.dumps([os.environ.get('NCCL_NET'), os.environ['NCCL_HOSTID']]))"
    monkeypatch.setattr(allreduce, "WORKER", worker)
    monkeypatch.setattr(allreduce, "program", lambda: "torch")
    run = allreduce.all_reduce(2, {"NCCL_NET": None, "FI_PROVIDER": "tcp"}, (4,), nodes=2)
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
    monkeypatch.setattr(allreduce, "program", lambda: str(tmp_path / "all_reduce_perf"))
    run = allreduce.all_reduce(2, {}, (1 << 22,), nodes=2)
    assert run["rows"] == [[{"bytes": 1 << 22, "wrong": 3, "busbw": 117.72}]]
    assert "NCCL INFO Channel" in run["log"]
    assert "libfabric traces" in run["log"]


@pytest.mark.parametrize(
    ("count", "insists", "plugin", "device", "runs"),
    [
        (2, "Libfabric", "/p", False, {"default": gpus.LIFTED, "two-nodes": gpus.OVER_TCP, "refusal": {}}),
        (8, "Libfabric", "/p", True, {"default": {}, "two-nodes": {}}),
        (2, "", "/p", False, {"default": {}, "two-nodes": gpus.OVER_TCP}),
        (2, "IB", "", False, {"default": gpus.LIFTED, "refusal": {}}),
        (2, "IB", "", True, {"default": {}, "two-nodes": {}}),
        (2, "", "", False, {"default": {}}),
        (1, "IB", "", False, {"refusal": {"NCCL_TESTS_DEVICE": "0"}}),
        (0, "Libfabric", "/p", False, {}),
    ],
)
def test_what_is_run_follows_from_the_image_and_the_machine(
    count: int, insists: str, plugin: str, device: bool, runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allreduce, "all_reduce", lambda _world, settings, _sizes, **_: settings)
    assert gpus._runs(count, {"insists": insists, "plugin": plugin, "device": device}) == runs


def test_what_takes_long_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: SimpleQueue[str] = SimpleQueue()
    spoken: list[str] = []

    def slow(*_: object) -> Measured:
        while not (spoken and spoken[-1].startswith("waiting")):
            spoken.append(lines.get(timeout=60))
        raise RdmaImagesError("not reached")

    monkeypatch.setattr(elsewhere, "measure", slow)
    monkeypatch.setattr("rdma_images.validate.waiting", functools.partial(progress.waiting, every=0.1))
    with pytest.raises(RdmaImagesError, match="not reached"):
        validate("", None, host="ssh://far", progress=lines.put)
    assert spoken[-1].startswith("waiting for what ssh://far measures, ")
