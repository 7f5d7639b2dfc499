"""The check of variables that name RDMA devices, on trees of the kernel's files."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.jobs.node import device_settings, rdma_devices
from tests.support.node_files import LOCAL, MAPPED, run_check, write_device, write_file


@pytest.mark.parametrize(
    ("pci_addresses", "setting", "count"),
    [
        (("0000:01:00.0", "0002:01:00.0"), "mlx5_0", 1),
        (("0000:01:00.0", "0002:01:00.0"), "mlx5", 0),
        (("0000:01:00.0", "0002:01:00.0"), "", 0),
        (("0000:01:00.0", "0000:01:00.1"), "mlx5_0", 0),  # another port
    ],
)
def test_half_of_a_port(tmp_path: Path, pci_addresses: tuple[str, str], setting: str, count: int) -> None:
    """As in NVIDIA/dgx-spark-playbooks pull request 103."""
    for number in range(2):
        write_device(tmp_path, f"mlx5_{number}", "mlx5_core")
        write_file(tmp_path / f"sys/class/infiniband/mlx5_{number}/sys_image_guid", "3c6d:6603:00a1:b2c4")
    halves = zip(rdma_devices.read_devices(str(tmp_path)), pci_addresses, strict=True)
    devices = [replace(half, pci=pci_address) for half, pci_address in halves]
    assert len(list(device_settings.check_names_of_devices(str(tmp_path), devices, "NCCL_IB_HCA", setting))) == count


@pytest.mark.parametrize(
    ("variable", "setting", "sentences"),
    [
        ("NCCL_IB_HCA", "mlx5_0,mlx_1", ["mlx_1, and no adapter here has that name"]),
        ("NCCL_IB_HCA", "mlx5", []),
        ("NCCL_IB_HCA", "=mlx5", ["mlx5, and no adapter here has that name"]),
        ("NCCL_IB_HCA", "^mlx9", []),
        ("NCCL_IB_HCA", "=mlx5_0:1", []),
        ("NCCL_IB_HCA", "mlx5_0:2", ["mlx5_0:2, and no port of it has that number"]),
        ("NCCL_IB_HCA", "", []),
        ("UCX_NET_DEVICES", "mlx5_0:1,eth0,mlx5_1:1", ["mlx5_1:1, and no adapter here has that name"]),
        ("UCX_NET_DEVICES", "mlx5:1", ["mlx5:1, and no adapter here has that name"]),
        ("UCX_NET_DEVICES", "all", []),
        ("UCX_NET_DEVICES", "$DEVICES", []),
        ("NVSHMEM_HCA_PE_MAPPING", "mlx5_0:1:2,mlx5_5:1:2", ["mlx5_5:1:2, and no adapter here has that name"]),
        ("MOONCAKE_DEVICE", '{"0": "mlx5_0"}', []),
    ],
)
def test_adapters_that_are_named_and_not_here(
    tmp_path: Path, variable: str, setting: str, sentences: list[str]
) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED))
    write_file(tmp_path / "sys/class/net/eth0/mtu", "1500")
    devices = rdma_devices.read_devices(str(tmp_path))
    yielded = device_settings.check_names_of_devices(str(tmp_path), devices, variable, setting)
    assert [sentence for _, _, sentence in yielded] == [f"{variable} names {sentence}" for sentence in sentences]


@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        ({"NCCL_IB_GID_INDEX": "5"}, ["error gids: NCCL_IB_GID_INDEX=5, and mlx5_0 has no such GID"]),
        ({"UCX_IB_GID_INDEX": "1"}, ["warning gids: UCX_IB_GID_INDEX=1 is a link-local GID of mlx5_0"]),
        ({"UCX_IB_GID_INDEX": "auto"}, []),
        ({"UCX_IB_GID_INDEX": "1", "UCX_NET_DEVICES": "mlx5_1:1"}, []),
        ({"UCX_IB_GID_INDEX": "1", "UCX_NET_DEVICES": "^mlx5_0:1"}, []),
        ({"UCCL_IB_GID_INDEX": "7", "UCCL_IB_HCA": "mlx5_0"}, ["warning gids: UCCL_IB_GID_INDEX=7, and mlx5_0 has no"]),
        ({"NVSHMEM_IB_GID_INDEX": "3"}, []),
        ({"MC_GID_INDEX": "0"}, ["warning gids: MC_GID_INDEX=0 is a link-local GID of mlx5_0"]),
        ({"NCCL_IB_TC": "106"}, []),
        ({"NCCL_IB_TC": "41"}, ["warning devices: NCCL_IB_TC=41, and mlx5_0 is set to class 106 for all connections"]),
    ],
)
def test_settings_of_each_library(tmp_path: Path, variables: dict[str, str], lines: list[str]) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, LOCAL, MAPPED, MAPPED))
    write_device(tmp_path, "mlx5_1", "mlx5_core", (MAPPED, MAPPED, MAPPED, MAPPED, MAPPED, MAPPED))
    write_file(tmp_path / "sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106\n")
    reported = [
        line for line in run_check(tmp_path, user=None, **variables) if " gids: " in line or " devices: " in line
    ]
    assert [line[: len(start)] for line, start in zip(reported, lines, strict=True)] == lines


@pytest.mark.parametrize(
    ("device_name", "variables", "count"),
    [
        ("roce_rail1", {"NVSHMEM_IB_ENABLE_IBGDA": "1"}, 1),
        ("roce_rail1", {"NVSHMEM_IB_ENABLE_IBGDA": "1", "NVSHMEM_HCA_PREFIX": "roce"}, 0),
        ("roce_rail1", {}, 0),
        ("mlx5_0", {"NVSHMEM_IB_ENABLE_IBGDA": "1"}, 0),
    ],
)
def test_adapters_whose_names_nvshmem_skips(
    tmp_path: Path, device_name: str, variables: dict[str, str], count: int
) -> None:
    """As in deepseek-ai/DeepEP issue 386."""
    write_device(tmp_path, device_name, "mlx5_core", (LOCAL, MAPPED))
    assert len([line for line in run_check(tmp_path, user=None, **variables) if "NVSHMEM's IBGDA" in line]) == count
