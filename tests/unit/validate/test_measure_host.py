"""Pods and machines: who cannot be reached is a sentence, and every tier learns which fabric it is about."""

import functools
import os
import sys
import venv
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from rdma_images import chain
from rdma_images.core import progress
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.inspection.inspection import FOLDER_PREFIX, Expected, Inspection
from rdma_images.inspection.machine import Devices, RdmaDevice
from rdma_images.inspection.measurements import Measured, MeasuredPackages, probe_names
from rdma_images.validate import expected_fabric, measure_host, probing
from rdma_images.validate.probes import all_reduce, gpus
from rdma_images.validate.validate_image import validate
from tests.incidents import elf_files


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
        measure_host.measure("ssh://nohost.invalid", ("device",))


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
    monkeypatch.setattr(measure_host, "SYSTEM_FOLDERS", (str(system),))
    measured = measure_host.measure(f"{FOLDER_PREFIX}{environment}", ("static",))
    assert measured.tree
    assert measured.packages
    libraries = [path for path in measured.tree.files.libraries if path.endswith("libnccl.so.2")]
    assert libraries == [f"{environment}/libnccl.so.2", f"{system}/libnccl.so.2"]
    assert measure_host.host_config("", "", measured).environment["PATH"].startswith(f"{environment}/bin:")
    assert "1.2" in {version for wheels in measured.packages.wheels.values() for version in wheels.values()}


def conda_environment(folder: Path) -> Path:
    """Make an environment as conda has it: a folder of what is installed, and variables by file and by script."""
    venv.create(folder, symlinks=True)
    for name in ("conda-meta", "etc/conda/activate.d", "etc/conda/env_vars.d"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/conda/env_vars.d/nccl.json").write_text('{"NCCL_NET": "Socket", "NCCL_IB_HCA": "mlx5_0"}')
    (folder / "conda-meta/state").write_text('{"env_vars": {"NCCL_NET": "IB", "NCCL_IB_HCA": "***unset***"}}')
    (folder / "etc/conda/activate.d/fabric.sh").write_text(
        'echo activating\nexport NCCL_NET_PLUGIN=ofi LD_LIBRARY_PATH="$CONDA_PREFIX/lib:$CONDA_PREFIX/my lib"\n'
    )
    return folder


def test_the_variables_of_condas_activation_are_those_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = conda_environment(tmp_path / "training")
    monkeypatch.setattr(measure_host, "SYSTEM_FOLDERS", ())
    environment = measure_host.host_config(
        "", "", measure_host.measure(f"{FOLDER_PREFIX}{folder}", ("static",))
    ).environment
    assert environment["NCCL_NET"] == "IB"
    assert environment["NCCL_NET_PLUGIN"] == "ofi"
    assert environment["LD_LIBRARY_PATH"] == f"{folder}/lib:{folder}/my lib"
    assert "NCCL_IB_HCA" not in environment


def test_the_variables_of_a_virtual_environments_activation_are_those_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "training", symlinks=True)
    with (tmp_path / "training" / "bin" / "activate").open("a") as script:
        script.write("export NCCL_IB_DISABLE=1\n")
    monkeypatch.setattr(measure_host, "SYSTEM_FOLDERS", ())
    measured = measure_host.measure(f"{FOLDER_PREFIX}{tmp_path}/training", ("static",))
    assert measure_host.host_config("", "", measured).environment["NCCL_IB_DISABLE"] == "1"


def test_an_activation_that_ends_the_shell_is_a_sentence(tmp_path: Path) -> None:
    folder = conda_environment(tmp_path / "training")
    (folder / "etc/conda/activate.d/zz.sh").write_text("echo no such module >&2\nexit 3\n")
    with pytest.raises(RdmaImagesError, match=r"training: its activation ends with 3: no such module\n"):
        measure_host.measure(f"{FOLDER_PREFIX}{folder}", ("static",))


def test_the_files_of_an_environment_whose_python_is_not_here_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment of another kind of node, on the disk of both: conda's Python brings the path of its libraries."""
    folder = tmp_path / "training"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "conda-meta").mkdir()
    libraries: dict[str, Any] = {
        "bin/python3": {"rpath": "$ORIGIN/../lib"},
        "lib/libnccl.so.2": {"words": ["NCCL version 2.30.7+cuda13.0", "ncclNetPlugin_v10", "libnccl-net.so"]},
        "lib/libnccl-net.so": {
            "needed": ["libfabric.so.1"],
            "exports": ["ncclNetPlugin_v10"],
            "words": ["NET/OFI Initializing aws-ofi-nccl 1.21.1"],
            "rpath": "$ORIGIN",
        },
        "lib/libfabric.so.1": {"needed": ["libefa.so.1"], "rpath": "$ORIGIN"},
        "lib/libibverbs.so.1": {"soname": "libibverbs.so.1"},
    }
    for name, content in libraries.items():
        (folder / name).write_bytes(elf_files.library(machine="aarch64", **content))
    monkeypatch.setattr(measure_host, "SYSTEM_FOLDERS", ())
    measured = measure_host.measure(f"{FOLDER_PREFIX}{folder}", ("static",))
    assert "bin/python3 cannot be started" in measured.missing["torch"]
    assert measured.tree
    assert measured.tree.libraries.resolved["libibverbs.so.1"].file == f"{folder}/lib/libibverbs.so.1"
    expected = Expected(fabric=None, because="")
    inspection = Inspection(
        subject=measure_host.host_config("", str(folder), measured), expected=expected, measured=measured
    )
    answer = chain.compute(inspection, "efa")
    assert answer
    assert "NCCL 2.30.7" in answer.answer
    assert "libnccl-net.so cannot be opened: it finds no libefa.so.1" in answer.answer


def test_a_folder_without_python_is_no_environment(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"no bin/python3\nname a conda or virtual environment"):
        measure_host.measure(f"{FOLDER_PREFIX}{tmp_path}", ("static",))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"gone: no such folder\nname a conda or virtual environment"):
        measure_host.measure(f"{FOLDER_PREFIX}{tmp_path}/gone", ("static",))


@pytest.mark.parametrize(
    ("text", "mode", "complaint"),
    [
        ("#!/bin/sh\necho libpython3.8.so.1.0: no such file >&2; exit 1", 0o755, "ended with 1: libpython3.8.so.1.0"),
        ("#!/bin/sh\necho python 3.6.8 is older than 3.8 >&2; exit 1", 0o755, "python 3.6.8 is older than 3.8"),
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
        measure_host.measure(f"{FOLDER_PREFIX}{python.parents[1]}", ("static",))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "Permission denied"),
        ("#!/absent/interpreter", "No such file or directory"),
        (None, "a link to /absent/python3, which is not here"),
    ],
)
def test_why_the_python_of_an_environment_was_not_started_is_said(
    text: str | None, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    if text is None:
        python.symlink_to("/absent/python3")
    else:
        python.write_text(text)
        python.chmod(0o755 if text else 0o644)
    monkeypatch.setattr(measure_host, "SYSTEM_FOLDERS", ())
    measured = measure_host.measure(f"{FOLDER_PREFIX}{tmp_path}", ("static",))
    assert measured.tree
    assert complaint in measured.missing["torch"]


def test_an_environment_is_measured_without_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "training", symlinks=True)
    monkeypatch.delenv("PATH")
    monkeypatch.setattr(measure_host, "SYSTEM_FOLDERS", ())
    assert measure_host.measure(f"{FOLDER_PREFIX}{tmp_path}/training", ("static",)).system


def test_a_host_that_measures_nothing_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "kubectl", "echo 'error: pods \"p\" not found' >&2; exit 1", monkeypatch)
    with pytest.raises(RdmaImagesError, match=r'p cannot be measured: .*pods "p" not found.*\ncheck the name'):
        measure_host.measure("kubectl://p", ("device",))


def test_what_speaks_of_the_fabric_is_measured_for_gpus_too() -> None:
    assert {"devices", "packages"} <= set(probe_names("gpu"))
    device = RdmaDevice(driver="efa", state="", mtu=0, p2p="")
    with_device = Measured(devices=Devices.model_construct(rdma={"rdmap0s0": device}))
    installed = Measured(packages=MeasuredPackages(wheels={}, dpkg={}, rpm={}, efa_installer="1.50.0"))
    for measured in (with_device, installed):
        subject = measure_host.host_config("", "local://", measured)
        assert expected_fabric.expected_image(subject, measured, None).fabric == "efa"


def test_this_machine_is_measured_as_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PYTHONS", (sys.executable,))
    measured = measure_host.measure("local://", ("device",))
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

    monkeypatch.setattr(measure_host, "measure", slow)
    monkeypatch.setattr(
        "rdma_images.validate.validate_image.report_waiting", functools.partial(progress.report_waiting, interval=0.1)
    )
    with pytest.raises(RdmaImagesError, match="not reached"):
        validate("", None, host="ssh://far", progress=lines.put)
    assert spoken[-1].startswith("waiting for what ssh://far measures, ")
