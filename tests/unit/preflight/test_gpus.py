"""The check of GPUs, and of what lets adapters reach their memory."""

from pathlib import Path

import pytest

from rdma_images.preflight import gpus
from tests.support.preflight_parts import LOCAL, MAPPED, run_check, write_device, write_file


def test_missing_gpus(tmp_path: Path) -> None:
    write_device(tmp_path, "rdmap0", "efa")
    assert "error gpus: 0 of 8 GPUs are in the container" in run_check(tmp_path, "--require=efa", "--gpus=8")


@pytest.mark.parametrize(
    ("setting", "count", "finding"),
    [
        (None, 8, ""),
        ("0,1", 2, ""),
        ("3", 0, ""),
        ("8", 0, "warning CUDA_VISIBLE_DEVICES=8 leaves 0 of 8 GPUs"),
        ("0,8", 2, "error CUDA_VISIBLE_DEVICES=0,8 leaves 1 of 2 GPUs"),
        ("NoDevFiles", 0, "warning CUDA_VISIBLE_DEVICES=NoDevFiles leaves 0 of 8 GPUs"),
        ("0,-1,1", 2, "error CUDA_VISIBLE_DEVICES=0,-1,1 leaves 1 of 2 GPUs"),
        ("", 2, "error CUDA_VISIBLE_DEVICES= leaves 0 of 2 GPUs"),
    ],
)
def test_gpus_that_a_variable_takes(
    tmp_path: Path, setting: str | None, count: int, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in pytorch-lightning issue 16828, snakemake-executor-plugin-slurm issue 316 and ray pull request 7014."""
    for number in range(8):
        write_file(tmp_path / f"dev/nvidia{number}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    findings = [f"{severity} {sentence}" for severity, _, sentence in gpus.check_gpus(str(tmp_path), count)]
    assert [sentence[: len(finding)] for sentence in findings] == ([finding] if finding else [])


def test_gpudirect(tmp_path: Path) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED))
    write_file(tmp_path / "dev/nvidia0")
    assert any("GPUDirect RDMA is off" in line for line in run_check(tmp_path))
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    assert run_check(tmp_path) == []


def test_efa_that_does_not_reach_gpus(tmp_path: Path) -> None:
    write_device(tmp_path, "rdmap0", "efa")
    write_file(tmp_path / "dev/nvidia0")
    write_file(tmp_path / "sys/class/infiniband/rdmap0/device/p2p", "NA\n")
    (line,) = run_check(tmp_path, "--require=efa")
    assert line.startswith("warning peer: EFA's driver does not reach the GPUs' memory (p2p of rdmap0 is NA)")
    write_file(tmp_path / "sys/class/infiniband/rdmap0/device/p2p", "NVIDIA\n")
    assert run_check(tmp_path, "--require=efa") == []
    write_file(tmp_path / "sys/class/infiniband/rdmap0/device/p2p", "NA\n")
    version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
    write_file(tmp_path / "proc/driver/nvidia/version", version)
    assert run_check(tmp_path, "--require=efa") == []
    assert gpus.nvidia_driver(str(tmp_path)) == "580.95.05"
