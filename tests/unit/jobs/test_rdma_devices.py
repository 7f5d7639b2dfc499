"""The check of RDMA devices, on trees of the kernel's files."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from rdma_images.jobs.node import neighbours, rdma_devices
from tests.support.node_files import LOCAL, MAPPED, ZERO, run_check, write_device, write_file


@pytest.mark.parametrize(
    ("fabric", "devices", "line"),
    [
        ("efa", [("mlx5_0", "mlx5_core", True)], "error devices: the kernel has no efa device"),
        (
            "efa",
            [("rdmap0", "efa", False)],
            "error devices: the kernel has rdmap0, and /dev/infiniband of this container has none of them",
        ),
        ("erdma", [("erdma_0", "erdma", False)], "error devices: the kernel has erdma_0"),
        ("efa", [("rdmap0", "efa", True), ("rdmap1", "efa", False)], "error devices: 1 of 4 adapters can be used here"),
    ],
)
def test_devices(tmp_path: Path, fabric: str, devices: list[tuple[str, str, bool]], line: str) -> None:
    for name, driver, usable in devices:
        write_device(tmp_path, name, driver, (LOCAL, MAPPED), usable=usable)
    assert any(finding.startswith(line) for finding in run_check(tmp_path, f"--fabric={fabric}", "--adapters=4"))


@pytest.mark.skipif(
    os.getuid() != 0 or not Path("/usr/bin/python3").exists(), reason="only root may start it as another user"
)
@pytest.mark.parametrize(
    ("fabric", "closed", "lines"),
    [
        ("ib", 0, []),
        ("ib", 1, ["warning devices: 2 of 3 adapters can be used here: mlx5_0 cannot be opened: Permission denied"]),
        ("ib", 2, ["error devices: 1 of 3 adapters can be used here: mlx5_0 cannot be opened: Permission denied"]),
        ("ib", 3, ["error devices: mlx5_0 cannot be opened: Permission denied; user 65534 has no right to its file"]),
        ("", 3, ["warning devices: mlx5_0 cannot be opened: Permission denied; user 65534 has no right to its file"]),
    ],
)
def test_devices_that_the_user_may_not_open(tmp_path: Path, fabric: str, closed: int, lines: list[str]) -> None:
    for number in range(3):
        write_device(tmp_path, f"mlx5_{number}", "mlx5_core", (LOCAL, MAPPED))
    for number in range(3):
        (tmp_path / f"dev/infiniband/uverbs{number}").chmod(0o600 if number < closed else 0o666)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    arguments = (f"--fabric={fabric}", "--adapters=3") if fabric else ("--nodes=2",)
    shown = [line for line in run_check(tmp_path, *arguments, user=65534) if " devices: " in line]
    assert [line[: len(start)] for line, start in zip(shown, lines, strict=True)] == lines


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("chattr"), reason="only root may make a file immutable")
def test_a_device_that_not_even_root_may_open(tmp_path: Path) -> None:
    """The kernel refuses to write an immutable file as a cgroup refuses a device: EPERM, whatever the mode."""
    write_device(tmp_path, "rdmap0", "efa")
    file = tmp_path / "dev/infiniband/uverbs0"
    subprocess.run(["chattr", "+i", str(file)], check=True)
    try:
        (line,) = (text for text in run_check(tmp_path, "--fabric=efa") if " devices: " in text)
    finally:
        subprocess.run(["chattr", "-i", str(file)], check=True)
    assert line.startswith(
        "error devices: rdmap0 cannot be opened: Operation not permitted; the container's cgroup does not let"
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root may make a device's file")
def test_a_device_file_without_its_device(tmp_path: Path) -> None:
    write_device(tmp_path, "rdmap0", "efa", usable=False)
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    os.mknod(tmp_path / "dev/infiniband/uverbs0", 0o600 | stat.S_IFCHR, os.makedev(240, 77))  # of no driver
    (line,) = (text for text in run_check(tmp_path, "--fabric=efa") if " devices: " in text)
    assert line == "error devices: rdmap0 cannot be opened: No such device or address"


def test_a_device_that_can_hide_efa_has_two_possible_causes(tmp_path: Path) -> None:
    write_device(tmp_path, "rdmap0", "efa")
    write_device(tmp_path, "ibp115s0", "mlx5_core")
    (line,) = (text for text in run_check(tmp_path, "--fabric=efa") if " devices: " in text)
    assert line.startswith("warning devices: ibp115s0 is in /dev/infiniband, too, and can hide EFA")
    assert "hostPath" in line
    assert "device plugin before 0.5.10" in line


@pytest.mark.parametrize(
    ("gids", "index", "line"),
    [
        ((LOCAL, LOCAL), "", "error gids: mlx5_0 has no GID of RoCE v2 that is routed"),
        ((LOCAL, MAPPED), "3", "error gids: NCCL_IB_GID_INDEX=3, and mlx5_0 has no such GID"),
        ((LOCAL, MAPPED, ZERO), "2", "error gids: NCCL_IB_GID_INDEX=2, and mlx5_0 has no such GID"),
        ((LOCAL, MAPPED), "0", "warning gids: NCCL_IB_GID_INDEX=0 is a link-local GID of mlx5_0"),
        ((LOCAL, MAPPED), "1", ""),
        ((LOCAL, MAPPED), "-1", ""),
    ],
)
def test_gids(tmp_path: Path, gids: tuple[str, ...], index: str, line: str) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", gids)
    gid_lines = [text for text in run_check(tmp_path, NCCL_IB_GID_INDEX=index) if " gids: " in text]
    assert [text.startswith(line) for text in gid_lines] == ([True] if line else [])


def test_a_port_that_is_down(tmp_path: Path) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED), state="1: DOWN")
    assert "error ports: the port is not active: mlx5_0" in run_check(tmp_path)


def test_the_active_one_of_two_ports_counts(tmp_path: Path) -> None:
    write_device(tmp_path, "mlx4_0", "mlx4_core", state="1: DOWN")
    write_file(tmp_path / "sys/class/infiniband/mlx4_0/ports/2/state", "4: ACTIVE")
    write_file(tmp_path / "sys/class/infiniband/mlx4_0/ports/2/rate", "40 Gb/sec (4X FDR10)")
    write_file(tmp_path / "sys/class/infiniband/mlx4_0/ports/2/link_layer", "InfiniBand")
    (device,) = rdma_devices.read_devices(str(tmp_path))
    assert (device.state, device.link_layer) == ("4: ACTIVE", "InfiniBand")
    assert rdma_devices.total_rate([device], 0) == 5.0


def test_a_port_that_nccl_does_not_use(tmp_path: Path) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED))
    write_device(tmp_path, "mlx5_1", "mlx5_core", (LOCAL, LOCAL), state="1: DOWN")
    assert len(run_check(tmp_path)) == 2
    assert run_check(tmp_path, NCCL_IB_HCA="mlx5_0") == []


def test_a_port_of_ethernet_beside_ports_of_infiniband(tmp_path: Path) -> None:
    for name in ("mlx5_0", "mlx5_1", "mlx5_2"):
        write_device(tmp_path, name, "mlx5_core", (LOCAL, MAPPED))
    for name in ("mlx5_0", "mlx5_1"):
        write_file(tmp_path / f"sys/class/infiniband/{name}/ports/1/link_layer", "InfiniBand")
    expected = (
        "warning devices: NCCL takes mlx5_2 of Ethernet beside mlx5_0, mlx5_1 of InfiniBand, which do not reach each "
        "other: set NCCL_IB_HCA=mlx5_0,mlx5_1"
    )
    assert expected in run_check(tmp_path, "--nodes=2")
    assert not any("beside" in line for line in run_check(tmp_path, "--nodes=2", NCCL_IB_HCA="mlx5_0,mlx5_1"))
    assert not any("beside" in line for line in run_check(tmp_path, "--nodes=1"))


def test_a_link_that_is_slower_than_its_neighbours(tmp_path: Path) -> None:
    for number, rate in enumerate(
        ["400 Gb/sec (4X NDR)", "400 Gb/sec (4X NDR)", "100 Gb/sec (1X NDR)", "25 Gb/sec (1X)"]
    ):
        write_device(tmp_path, f"mlx5_{number}", "mlx5_core", (LOCAL, MAPPED))
        folder = tmp_path / f"sys/class/infiniband/mlx5_{number}"
        write_file(folder / "ports/1/rate", rate)
        write_file(folder / "device/vendor", "0x15b3")
        write_file(folder / "device/device", "0x1017" if rate.startswith("25") else "0x1021")  # a card for storage
    lines = [line for line in run_check(tmp_path) if " rates: " in line]
    assert lines == ["warning rates: the link of mlx5_2 is slower than that of the others, 400 Gb/s"]


@pytest.mark.parametrize(
    ("current", "adapter", "slot", "sentence"),
    [
        (
            ("8", "16.0 GT/s PCIe"),
            ("16", "16.0 GT/s PCIe"),
            ("16", "32.0 GT/s PCIe"),
            "8 lanes, and the adapter and its",
        ),
        (
            ("16", "8.0 GT/s PCIe"),
            ("16", "16.0 GT/s PCIe"),
            ("16", "32.0 GT/s PCIe"),
            "8 GT/s, and the adapter and its",
        ),
        (("4", "32.0 GT/s PCIe"), ("16", "32.0 GT/s PCIe"), ("4", "32.0 GT/s PCIe"), ""),
        (("0", "Unknown"), ("0", "Unknown"), ("16", "32.0 GT/s PCIe"), ""),
    ],
)
def test_a_link_of_pci_express_below_its_ends(
    tmp_path: Path, current: tuple[str, str], adapter: tuple[str, str], slot: tuple[str, str], sentence: str
) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED))
    folder = tmp_path / "sys/class/infiniband/mlx5_0"
    bridge = tmp_path / "bridge"
    (bridge).mkdir()
    (folder / "device").rename(bridge / "0000:01:00.0")
    (folder / "device").symlink_to(bridge / "0000:01:00.0")
    for path, kind, values in (
        (folder / "device", "current", current),
        (folder / "device", "max", adapter),
        (bridge, "max", slot),
    ):
        for name, value in zip(("width", "speed"), values, strict=True):
            write_file(path / f"{kind}_link_{name}", value)
    sentences = [text for _, _, text in rdma_devices.check_pci_links(rdma_devices.read_devices(str(tmp_path)))]
    assert [text.startswith(f"the PCI Express link of mlx5_0 has {sentence}") for text in sentences] == (
        [True] if sentence else []
    )


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ((), []),
        (("--nodes=2",), ["note devices: the kernel has no RDMA device"]),
        (("--fabric=efa",), ["error devices: the kernel has no efa device"]),
    ],
)
def test_no_adapter_is_an_error_where_a_fabric_is_named(
    tmp_path: Path, arguments: tuple[str, ...], lines: list[str]
) -> None:
    write_file(tmp_path / "dev/nvidia0")
    reported = [line for line in run_check(tmp_path, *arguments) if " devices: " in line]
    assert [line[: len(start)] for line, start in zip(reported, lines, strict=True)] == lines


def write_infiniband(root: Path, name: str, keys: tuple[str, ...], subnet: str = "fe80") -> None:
    """Write a port of InfiniBand with these partition keys."""
    write_device(root, name, "mlx5_core", (f"{subnet}{LOCAL[4:]}",), link_layer="InfiniBand")
    for index, key in enumerate(keys):
        write_file(root / f"sys/class/infiniband/{name}/ports/1/pkeys/{index}", key)


@pytest.mark.parametrize(
    ("keys", "setting", "state"),
    [
        (("0xffff", "0x0000"), "", ""),
        (("0x0000", "0x0000"), "", ""),  # no subnet manager has given it one
        (("0x0000", "0xffff"), "", "has no partition key at index 0, which NCCL takes: 0xffff is at index 1, set"),
        (("0x0000", "0xffff"), "1", ""),
        (("0x8023", "0x7fff"), "", ""),
        (("0x7fff", "0x8023"), "", "is a limited member of its partition, which reaches no other one, by its key 0x7f"),
        (("0x8023", "0x7fff"), "1", "is a limited member of its partition"),
        (("0x7fff",), "0", "is a limited member of its partition"),
        (("0x0000", "0xffff"), "x", ""),
    ],
)
def test_partition_keys_of_infiniband(tmp_path: Path, keys: tuple[str, ...], setting: str, state: str) -> None:
    """As in NCCL's issue 1323, and as on virtual machines whose default key is a limited member's."""
    for name in ("mlx5_0", "mlx5_1"):
        write_infiniband(tmp_path, name, keys)
    variables = {"NCCL_IB_PKEY": setting} if setting else {}
    lines = run_check(tmp_path, "--fabric=ib", "--nodes=2", user=None, **variables)
    shown = [line for line in lines if "partition" in line]
    assert len(shown) == bool(state)
    assert all(line.startswith(f"warning ports: mlx5_0 {state}") for line in shown)
    assert not [line for line in run_check(tmp_path, "--fabric=ib", user=None, **variables) if "partition" in line]


def test_a_port_of_roce_has_no_partition(tmp_path: Path) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED))
    write_file(tmp_path / "sys/class/infiniband/mlx5_0/ports/1/pkeys/0", "0x0000")
    assert not [line for line in run_check(tmp_path, "--fabric=ib", "--nodes=2") if "partition" in line]


@pytest.mark.parametrize(
    ("message", "is_shown"),
    [
        ("mlx4_en 0000:0d:00.0: LSO not supported, please upgrade to later FW version to enable LSO", True),
        ("mlx4_en 0000:0d:00.0 eth2: Firmware is too old", True),
        ("mlx4_en 0000:0d:00.0: UDP RSS is not supported on this device", False),
        ("mlx5_core 0000:0d:00.0: firmware version: 16.35.2000", False),
        ("nvme 0000:01:00.0: firmware is too old, please update", False),
        ("systemd[1]: please update the firmware", False),
    ],
)
def test_drivers_that_ask_for_newer_firmware(tmp_path: Path, message: str, is_shown: bool) -> None:
    """As in issue 219 of clustervision/trinity; the log is as old as the node's start."""
    for address, pci_class in (("0000:0d:00.0", "0x020000"), ("0000:01:00.0", "0x010802")):
        write_file(tmp_path / "sys/bus/pci/devices" / address / "class", pci_class)
    write_file(tmp_path / "proc/uptime", "9000000.00 1.00\n")
    write_file(
        tmp_path / "dev/kmsg", f"4,1,1000000,-;Linux version 6\n4,2,1000001,-;{message}\n4,3,1000002,-;{message}\n"
    )
    expected = [("warning", "devices", f"the kernel's log asks for newer firmware: {message}")] if is_shown else []
    assert list(rdma_devices.check_firmware(str(tmp_path))) == expected


def test_nodes_in_other_subnets_and_partitions_of_infiniband(tmp_path: Path) -> None:
    facts = []
    for name, subnet, keys in (("n1", "fe80", ("0xffff",)), ("n2", "fec0", ("0xffff", "0x8023"))):
        write_infiniband(tmp_path / name, "mlx5_0", keys, subnet)
        root = str(tmp_path / name)
        facts.append(neighbours.node_facts(root, rdma_devices.read_devices(root), name))
    assert neighbours.describe_differences(facts) == [
        "partitions of InfiniBand differs: 0x7fff on 1 of 2 nodes; 0x0023,0x7fff on n2",
        "subnets of InfiniBand differs: fe80000000000000 on 1 of 2 nodes; fec0000000000000 on n2",
    ]
