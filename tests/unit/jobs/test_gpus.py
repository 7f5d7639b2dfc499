"""The check of GPUs: what their files, nvidia-smi, CUDA and the kernel's log say."""

import os
from pathlib import Path

import pytest

from rdma_images.jobs.node import gpus, system
from tests.support.node_files import run_check, write_device, write_file


def test_missing_gpus(tmp_path: Path) -> None:
    write_device(tmp_path, "rdmap0", "efa")
    assert "error gpus: 0 of 8 GPUs are in the container" in run_check(tmp_path, "--fabric=efa", "--gpus=8")


@pytest.mark.parametrize(
    ("variables", "count", "finding"),
    [
        ({}, 8, ""),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 2, ""),
        ({"CUDA_VISIBLE_DEVICES": "3"}, 0, ""),
        ({"CUDA_VISIBLE_DEVICES": "8"}, 0, "warning CUDA_VISIBLE_DEVICES=8 leaves none of the 8 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": "0,8"}, 2, "error CUDA_VISIBLE_DEVICES=0,8 leaves 1 of 2 GPUs"),
        (
            {"CUDA_VISIBLE_DEVICES": "NoDevFiles"},
            0,
            "warning CUDA_VISIBLE_DEVICES=NoDevFiles leaves none of the 8 GPUs, as Slurm sets it",
        ),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 2, "error CUDA_VISIBLE_DEVICES=0 leaves 1 of 2 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, 2, "error CUDA_VISIBLE_DEVICES=0,-1,1 leaves 1 of 2 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": ""}, 2, "error CUDA_VISIBLE_DEVICES= leaves 0 of 2 GPUs"),
        (
            {"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_PER_TASK": "1"},
            8,
            "error CUDA_VISIBLE_DEVICES=0 leaves 1 of 8 GPUs, since Slurm gives each task its own",
        ),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_NTASKS_PER_GPU": "1"}, 0, "note each of Slurm's tasks sees one GPU"),
    ],
)
def test_gpus_that_a_variable_takes(variables: dict[str, str], count: int, finding: str) -> None:
    """As in pytorch-lightning issue 16828, snakemake-executor-plugin-slurm issue 316 and ray pull request 7014."""
    findings = [f"{severity} {sentence}" for severity, _, sentence in gpus.check_visible_gpus(variables, count, 8)]
    assert len(findings) == bool(finding)
    assert all(sentence.startswith(finding) for sentence in findings)


@pytest.mark.parametrize(("refused", "count", "errors"), [(0, 8, 0), (1, 8, 1), (4, 4, 0), (8, 0, 1)])
def test_gpus_that_a_cgroup_keeps_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: int, count: int, errors: int
) -> None:
    """As after systemctl daemon-reload; Slurm lets a job open its own GPUs alone."""
    paths = [str(tmp_path / f"nvidia{number}") for number in range(8)]

    def open_file(path: str, _: int) -> int:
        if paths.index(path) < refused:
            raise PermissionError(1, "Operation not permitted")
        return os.dup(0)

    monkeypatch.setattr(os, "open", open_file)
    assert len(list(gpus.check_device_files(paths, count))) == errors


SMI = """
GPU 00000000:18:00.0
    MIG Mode
        Current                           : {mig}
        Pending                           : Disabled
    Fabric
        State                             : {fabric}
        Status                            : {status}
    Retired Pages
        Single Bit ECC                    : N/A
        Pending Page Blacklist            : No
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 0
        Pending                           : {rows}
        Remapping Failure Occurred        : No
    Compute Mode                          : Default
    Processes                             : {processes}
"""


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, []),
        ({"fabric": "N/A"}, []),
        (
            {"fabric": "In Progress"},
            [("error", "GPU 0: the fabric of NVSwitch is not ready, see nvidia-fabricmanager")],
        ),
        (
            {"status": "Insufficient Resources"},
            [("error", "GPU 0: the fabric of NVSwitch registered it with an error, see Fabric in nvidia-smi -q")],
        ),
        ({"mig": "Enabled"}, [("warning", "GPU 0: MIG is on, and NCCL refuses two instances of one GPU")]),
        ({"rows": "Yes"}, [("warning", "GPU 0: rows of its memory wait for a reset")]),
        (
            {"processes": "\n        GPU instance ID : N/A\n        Process ID : 4242"},
            [("warning", "GPU 0: another process uses its memory")],
        ),
    ],
)
def test_states_of_gpus(states: dict[str, str], expected: list[tuple[str, str]]) -> None:
    text = SMI.format(
        **{"mig": "Disabled", "fabric": "Completed", "status": "Success", "rows": "No", "processes": "None", **states}
    )
    reported = [(severity, sentence) for severity, _, sentence in gpus.gpu_states(text)]
    assert reported == expected


def test_errors_of_gpus_in_the_kernels_log(tmp_path: Path) -> None:
    write_file(tmp_path / "proc/uptime", "100000.00 1.00\n")
    write_file(
        tmp_path / "dev/kmsg",
        "4,1,99000000000,-;NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.\n"
        "4,2,99000000001,-;NVRM: Xid (PCI:0000:2a:00): 31, pid=1, MMU fault\n"
        "4,3,1000000,-;NVRM: Xid (PCI:0000:3a:00): 94, pid=1\n",
    )
    assert [sentence for _, _, sentence in gpus.check_kernel_log(str(tmp_path))] == [
        "the kernel's log has Xid 79 of GPU 0000:18:00 within a day"
    ]


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (0, "0 no error", []),
        (0, "100 no CUDA-capable device is detected", []),
        (
            0,
            "802 system not yet initialized",
            ["CUDA does not start: error 802, system not yet initialized: as when nvidia-fabricmanager does not run"],
        ),
        (0, "34 CUDA driver is a stub library", ["CUDA does not start: error 34, CUDA driver is a stub library"]),
        (
            0,
            "34 /tmp/stubs/libcuda.so.1",
            ["CUDA does not start: error 34, /tmp/stubs/libcuda.so.1: the CUDA toolkit's"],
        ),
        (1, "Traceback", []),
        (
            0,
            "999 unknown error",
            ["CUDA does not start: error 999, unknown error: /dev/nvidia-uvm.absent is not in"],
        ),
        (-11, "", ["a process that starts CUDA is ended by signal 11"]),
        (system.TIMED_OUT, "no answer in 20 s", ["CUDA does not start: no answer in 20 s"]),
    ],
)
def test_cuda_that_does_not_start(code: int, text: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "has_library", lambda _: True)
    monkeypatch.setattr(gpus, "run_program", lambda *_: (code, text))
    monkeypatch.setattr(gpus, "UVM_DEVICE", "/dev/nvidia-uvm.absent")
    sentences = [sentence for _, _, sentence in gpus.check_cuda("", ["/dev/nvidia0"])]
    assert [text[: len(start)] for text, start in zip(sentences, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("GPU 0: NVIDIA H100\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n", 1),
        ("GPU 0: NVIDIA H100\n\t Link 0: 26.562 GB/s\n", 0),
        ("GPU 0: NVIDIA H100 PCIe\nNVML: Unable to retrieve NVLink information as all links are inActive\n", 0),
    ],
)
def test_a_link_that_is_down(text: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards on PCI Express without a bridge have links that nothing is connected to."""
    monkeypatch.setattr(gpus, "run_program", lambda *_: (0, text))
    assert [name for _, name, _ in gpus.check_nvlink()] == ["nvlink"] * count


def test_a_program_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "PROGRAM_SECONDS", 0.1)
    assert system.run_program("sleep", "5") == (system.TIMED_OUT, "no answer in 0 s")


def test_a_container_without_the_drivers_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in mudler/LocalAI issue 11973: NVML is there."""
    monkeypatch.setattr(gpus, "has_library", lambda _: False)
    ((severity, _, sentence),) = gpus.check_cuda("", ["/dev/nvidia0"])
    assert severity == "error"
    assert sentence.startswith("libcuda.so.1, the driver's, is not found, and GPUs are here")
    assert not list(gpus.check_cuda("", []))


@pytest.mark.parametrize(
    ("switch", "state", "count"), [(True, "inactive", 1), (True, "active", 0), (False, "inactive", 0)]
)
def test_a_fabric_manager_that_does_not_run(
    tmp_path: Path, switch: bool, state: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if switch:
        write_file(tmp_path / "dev/nvidia-nvswitch0")
    monkeypatch.setattr(gpus, "run_program", lambda *_: (3, f"{state}\n"))
    assert len(list(gpus.check_fabric_manager(str(tmp_path)))) == count


@pytest.mark.parametrize(
    ("cluster", "nodes", "setting", "channel", "count"),
    [
        ("3143b15b-c2cd-192b-28cc-9b5473fb5b93", 2, "", False, 1),
        ("3143b15b-c2cd-192b-28cc-9b5473fb5b93", 2, "", True, 0),
        ("3143b15b-c2cd-192b-28cc-9b5473fb5b93", 2, "0", False, 0),
        ("3143b15b-c2cd-192b-28cc-9b5473fb5b93", 1, "", False, 0),
        ("00000000-0000-0000-0000-000000000000", 2, "", False, 0),
        ("N/A", 2, "", False, 0),
    ],
)
def test_nvlink_between_nodes_needs_a_channel(
    tmp_path: Path, cluster: str, nodes: int, setting: str, channel: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_MNNVL_ENABLE", setting)
    if channel:
        write_file(tmp_path / "dev/nvidia-caps-imex-channels/channel0")
    text = f"    Fabric\n        State   : Completed\n        CliqueId   : 0\n        ClusterUUID    : {cluster}\n"
    assert len(list(gpus.check_imex(str(tmp_path), text, nodes))) == count


@pytest.mark.parametrize(("links", "is_linked"), [("26.562 GB/s", True), ("<inactive>", False)])
def test_nvlink_between_all_gpus(links: str, is_linked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `nvidia-smi nvlink --status` prints it on two H200."""
    text = "GPU 0: NVIDIA H200 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\nGPU 1: NVIDIA H200 (UUID: GPU-2)\n\t Link 0: %s\n"
    monkeypatch.setattr(gpus, "run_program", lambda *_: (0, text % links))
    assert gpus.has_nvlink("", 2) == is_linked
