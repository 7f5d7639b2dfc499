"""The check of what lets adapters reach GPUs' memory, on trees of the kernel's files."""

import argparse
import os
import struct
from pathlib import Path

import pytest

from rdma_images.jobs.node import gpudirect, node_check, rdma_devices, system
from tests.support.node_files import LOCAL, MAPPED, run_check, write_device, write_file


def test_gpudirect(tmp_path: Path) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED))
    write_file(tmp_path / "dev/nvidia0")
    assert any("neither nvidia_peermem nor" in line for line in run_check(tmp_path))
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    assert run_check(tmp_path) == []
    (tmp_path / "sys/kernel/mm/memory_peers").mkdir(parents=True)
    assert any("loaded and not registered" in line for line in run_check(tmp_path))


@pytest.mark.parametrize(
    ("driver", "kind", "ats", "machine", "count"),
    [
        ("mlx5_core", "DMA-FQ", None, "x86_64", 1),
        ("mlx5_core", "DMA", 0x0000, "x86_64", 1),
        ("mlx5_core", "DMA", 0x8000, "x86_64", 0),
        ("mlx5_core", "identity", None, "x86_64", 0),
        ("mlx5_core", "", None, "x86_64", 0),  # no IOMMU, or a virtual machine that sees none, as EC2's
        ("mlx5_core", "DMA-FQ", None, "aarch64", 0),
        ("efa", "DMA-FQ", None, "x86_64", 0),
    ],
)
def test_an_iommu_that_translates(
    tmp_path: Path, driver: str, kind: str, ats: int | None, machine: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_device(tmp_path, "dev0", driver, (LOCAL, MAPPED))
    write_file(tmp_path / "dev/nvidia0")
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    folder = tmp_path / "sys/class/infiniband/dev0/device"
    if kind:
        write_file(folder / "iommu_group/type", f"{kind}\n")
    if ats is not None:
        space = bytearray(4096)
        struct.pack_into("<IHH", space, 0x100, 1 << 16 | 0x000F, 0x20, ats)
        (folder / "config").write_bytes(space)
    kernel = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*kernel[:4], machine)))
    options = argparse.Namespace(
        fabric="efa" if driver == "efa" else "", adapters=0, gpus=1, nodes=1, rank=0, master="", root=str(tmp_path)
    )
    yielded = [row for row in node_check.local_findings(str(tmp_path), options, None) if row[1] == "iommu"]
    assert [severity for severity, _, _ in yielded] == ["warning"] * count


def test_efa_that_does_not_reach_gpus(tmp_path: Path) -> None:
    write_device(tmp_path, "rdmap0", "efa")
    write_file(tmp_path / "dev/nvidia0")
    write_file(tmp_path / "sys/class/infiniband/rdmap0/device/p2p", "NA\n")
    (line,) = run_check(tmp_path, "--fabric=efa")
    assert line.startswith("warning peer: EFA's driver does not reach the GPUs' memory (p2p of rdmap0 is NA)")
    write_file(tmp_path / "sys/class/infiniband/rdmap0/device/p2p", "NVIDIA\n")
    assert run_check(tmp_path, "--fabric=efa") == []
    write_file(tmp_path / "sys/class/infiniband/rdmap0/device/p2p", "NA\n")
    write_file(
        tmp_path / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05"
    )
    assert run_check(tmp_path, "--fabric=efa") == []


def test_gdrcopy_without_its_driver(tmp_path: Path) -> None:
    gpus = ["/dev/nvidia0"]
    ((severity, name, _),) = gpudirect.check_gdrcopy(str(tmp_path), gpus, has_gdrcopy=True)
    assert (severity, name) == ("warning", "gdrcopy")
    assert not list(gpudirect.check_gdrcopy(str(tmp_path), gpus, has_gdrcopy=False))
    write_file(tmp_path / "dev/gdrdrv")
    assert not list(gpudirect.check_gdrcopy(str(tmp_path), gpus, has_gdrcopy=True))
    assert system.has_library("libc.so.6")
    assert not system.has_library("libabsent.so.1")


def test_a_version_of_nccl_and_what_it_looks_for(tmp_path: Path) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, LOCAL, MAPPED, MAPPED))
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    devices = rdma_devices.read_devices(str(tmp_path))

    def sentences(nccl: tuple[int, int, int] | None, index: str = "") -> list[str]:
        yielded = [
            *rdma_devices.check_gids(devices, index, nccl),
            *gpudirect.check_gpudirect(str(tmp_path), devices, ["/dev/nvidia0"], nccl),
        ]
        return [sentence for _, _, sentence in yielded]

    gid, module = sentences((2, 20, 5))
    assert gid == "NCCL before 2.21 takes GID 0 of mlx5_0, which is not routed: NCCL_IB_GID_INDEX=3"
    assert module.startswith("NCCL before 2.23.4 does not see nvidia_peermem where ")
    assert sentences((2, 22, 3)) == [module]
    assert sentences((2, 20, 5), "3") == [module]
    assert sentences((2, 23, 4)) == sentences(None) == []
    write_file(tmp_path / "sys/kernel/mm/memory_peers/nv_mem/version", "1.0")
    assert sentences((2, 22, 3)) == []


def test_pci_acs(tmp_path: Path) -> None:
    """A bridge's configuration space as PCI Express writes it: AER at 0x100, then ACS with its control register."""
    bridge = tmp_path / "sys/bus/pci/devices/0000:00:01.0"
    write_file(bridge / "class", "0x060400")
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x148 << 20 | 1 << 16 | 0x0001)
    struct.pack_into("<IHH", space, 0x148, 1 << 16 | 0x000D, 0x1F, 0x1D)
    (bridge / "config").write_bytes(space)
    assert gpudirect.acs_bridges(str(tmp_path)) == ["0000:00:01.0"]
    struct.pack_into("<H", space, 0x14E, 0x01)
    (bridge / "config").write_bytes(space)
    assert gpudirect.acs_bridges(str(tmp_path)) == []
    (bridge / "config").write_bytes(space[:64])
    assert gpudirect.acs_bridges(str(tmp_path)) == []
