"""The check of a node before a job's command: on trees of the kernel's files, and between processes."""

import argparse
import os
import re
import resource
import shutil
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rdma_images.jobs.node import node_check
from rdma_images.jobs.write import render

ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
LOCAL, MAPPED = "fe80:0000:0000:0000:0000:00ff:fe00:0001", "0000:0000:0000:0000:0000:ffff:c000:0202"


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def device(root: Path, name: str, driver: str, gids: tuple[str, ...] = (), usable: bool = True, **files: str) -> None:
    """Write an RDMA device as the kernel shows it in /sys/class/infiniband."""
    folder = root / "sys/class/infiniband" / name
    (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    verbs = f"uverbs{len(list(folder.parent.glob('*'))) if folder.parent.exists() else 0}"
    write(folder / "device/infiniband_verbs" / verbs / "dev", "231:192")
    (folder / "device/driver").symlink_to(root / "drivers" / driver)
    write(folder / "ports/1/state", files.get("state", "4: ACTIVE"))
    write(folder / "ports/1/link_layer", "Unspecified" if driver == "efa" else "Ethernet")
    for index, gid in enumerate(gids):
        write(folder / f"ports/1/gids/{index}", gid)
        write(folder / f"ports/1/gid_attrs/types/{index}", "RoCE v2" if index % 2 else "IB/RoCE v1")
    if usable:
        write(root / "dev/infiniband" / verbs)
    write(root / "proc/self/status", "Name:\tpython3\nCapEff:\t00000000a80465fb\n")  # Docker's own, and IPC_LOCK


def findings(root: Path, *arguments: str, **variables: str) -> list[str]:
    """Return what the check prints without its last line."""
    return started(root, None, *arguments, **variables)


def started(root: Path, user: int | None, *arguments: str, **variables: str) -> list[str]:
    """Return what the check prints, started by a user as every launcher starts it, and without the last line."""
    done = subprocess.run(
        [
            "sh",
            "-c",
            'ulimit -l 64; exec "$@"',
            "sh",
            sys.executable if user is None else "/usr/bin/python3",  # others may not enter root's home
            "-c",
            render.packed_program(node_check),
            f"--root={root}",
            *arguments,
        ],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        user=user,
    )
    *lines, last = done.stdout.splitlines()
    assert last.startswith(f"{node_check.MARK} {socket.gethostname()} done in ")
    errors = [line for line in lines if line.split()[2] == "error"]
    assert done.returncode == int(bool(errors)), done.stderr
    return [line.split(maxsplit=2)[2] for line in lines]


def test_a_machine_without_hardware_is_no_bad_node(tmp_path: Path) -> None:
    (line,) = findings(tmp_path, "--fabric=efa", "--adapters=4", "--gpus=8")
    assert line.startswith("warning hardware: neither a GPU nor an RDMA device")


def test_a_node_has_its_name_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_NODE", "ip-10-0-1-17.ec2.internal")
    assert node_check.node_name() == "ip-10-0-1-17.ec2.internal"


def test_a_good_node_says_nothing(tmp_path: Path) -> None:
    for number in range(4):
        device(tmp_path, f"rdmap{number}", "efa")
    write(tmp_path / "dev/nvidia0")
    assert findings(tmp_path, "--fabric=efa", "--adapters=4", "--gpus=1") == []


@pytest.mark.parametrize(
    ("fabric", "devices", "line"),
    [
        ("efa", [("mlx5_0", "mlx5_core", True)], "error devices: the kernel has no efa device"),
        (
            "efa",
            [("rdmap0", "efa", False)],
            "error devices: rdmap0 are there, and /dev/infiniband has none of them here",
        ),
        ("erdma", [("erdma_0", "erdma", False)], "error devices: erdma_0 are there"),
        ("efa", [("rdmap0", "efa", True), ("rdmap1", "efa", False)], "error devices: 1 of 4 adapters can be used here"),
    ],
)
def test_devices(tmp_path: Path, fabric: str, devices: list[tuple[str, str, bool]], line: str) -> None:
    for name, driver, usable in devices:
        device(tmp_path, name, driver, (LOCAL, MAPPED), usable=usable)
    assert any(finding.startswith(line) for finding in findings(tmp_path, f"--fabric={fabric}", "--adapters=4"))


@pytest.mark.skipif(
    os.getuid() != 0 or not Path("/usr/bin/python3").exists(), reason="only root may start it as another user"
)
@pytest.mark.parametrize(
    ("fabric", "closed", "lines"),
    [
        ("ib", 0, []),
        ("ib", 1, []),  # one less than asked for may be a device plugin's
        ("ib", 2, ["error devices: 1 of 3 adapters can be used here: mlx5_0 cannot be opened: Permission denied"]),
        ("ib", 3, ["error devices: mlx5_0 cannot be opened: Permission denied; user 65534 has no right to its file"]),
        ("", 3, ["warning devices: mlx5_0 cannot be opened: Permission denied; user 65534 has no right to its file"]),
    ],
)
def test_devices_that_the_user_may_not_open(tmp_path: Path, fabric: str, closed: int, lines: list[str]) -> None:
    for number in range(3):
        device(tmp_path, f"mlx5_{number}", "mlx5_core", (LOCAL, MAPPED))
    for number in range(3):
        (tmp_path / f"dev/infiniband/uverbs{number}").chmod(0o600 if number < closed else 0o666)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    arguments = (f"--fabric={fabric}", "--adapters=3") if fabric else ("--nodes=2",)
    shown = [line for line in started(tmp_path, 65534, *arguments) if " devices: " in line]
    assert [line[: len(start)] for line, start in zip(shown, lines, strict=True)] == lines


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("chattr"), reason="only root may make a file immutable")
def test_a_device_that_not_even_root_may_open(tmp_path: Path) -> None:
    """The kernel refuses to write an immutable file as a cgroup refuses a device: EPERM, whatever the mode."""
    device(tmp_path, "rdmap0", "efa")
    file = tmp_path / "dev/infiniband/uverbs0"
    subprocess.run(["chattr", "+i", str(file)], check=True)
    try:
        (line,) = (text for text in findings(tmp_path, "--fabric=efa") if " devices: " in text)
    finally:
        subprocess.run(["chattr", "-i", str(file)], check=True)
    assert line.startswith(
        "error devices: rdmap0 cannot be opened: Operation not permitted; the container's cgroup does not let"
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root may make a device's file")
def test_a_device_file_without_its_device(tmp_path: Path) -> None:
    device(tmp_path, "rdmap0", "efa", usable=False)
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    os.mknod(tmp_path / "dev/infiniband/uverbs0", 0o600 | stat.S_IFCHR, os.makedev(240, 77))  # of no driver
    (line,) = (text for text in findings(tmp_path, "--fabric=efa") if " devices: " in text)
    assert line == "error devices: rdmap0 cannot be opened: No such device or address"


def test_a_device_that_can_hide_efa_has_two_possible_causes(tmp_path: Path) -> None:
    device(tmp_path, "rdmap0", "efa")
    device(tmp_path, "ibp115s0", "mlx5_core")
    (line,) = (text for text in findings(tmp_path, "--fabric=efa") if " devices: " in text)
    assert line.startswith("warning devices: ibp115s0 is in /dev/infiniband, too, and can hide EFA")
    assert "hostPath" in line
    assert "device plugin before 0.5.10" in line


@pytest.mark.parametrize(
    ("gids", "index", "line"),
    [
        ((LOCAL, LOCAL), "", "error gids: mlx5_0 has no GID of RoCE v2 but link-local ones"),
        ((LOCAL, MAPPED), "3", "error gids: NCCL_IB_GID_INDEX=3, and mlx5_0 has no such GID"),
        ((LOCAL, MAPPED, ZERO), "2", "error gids: NCCL_IB_GID_INDEX=2, and mlx5_0 has no such GID"),
        ((LOCAL, MAPPED), "0", "warning gids: NCCL_IB_GID_INDEX=0 is a link-local GID of mlx5_0"),
        ((LOCAL, MAPPED), "1", ""),
        ((LOCAL, MAPPED), "-1", ""),
    ],
)
def test_gids(tmp_path: Path, gids: tuple[str, ...], index: str, line: str) -> None:
    device(tmp_path, "mlx5_0", "mlx5_core", gids)
    gid_lines = [text for text in findings(tmp_path, NCCL_IB_GID_INDEX=index) if " gids: " in text]
    assert [text.startswith(line) for text in gid_lines] == ([True] if line else [])


def test_a_port_that_is_down(tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED), state="1: DOWN")
    assert "error ports: the port is not active: mlx5_0" in findings(tmp_path)


def test_missing_gpus(tmp_path: Path) -> None:
    device(tmp_path, "rdmap0", "efa")
    assert "error gpus: 0 of 8 GPUs are in the container" in findings(tmp_path, "--fabric=efa", "--gpus=8")


def test_gpudirect(tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED))
    write(tmp_path / "dev/nvidia0")
    assert any("neither nvidia_peermem nor" in line for line in findings(tmp_path))
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    assert findings(tmp_path) == []
    (tmp_path / "sys/kernel/mm/memory_peers").mkdir(parents=True)
    assert any("loaded and not registered" in line for line in findings(tmp_path))


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
    device(tmp_path, "dev0", driver, (LOCAL, MAPPED))
    write(tmp_path / "dev/nvidia0")
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    folder = tmp_path / "sys/class/infiniband/dev0/device"
    if kind:
        write(folder / "iommu_group/type", f"{kind}\n")
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
    device(tmp_path, "rdmap0", "efa")
    write(tmp_path / "dev/nvidia0")
    write(tmp_path / "sys/class/infiniband/rdmap0/device/p2p", "NA\n")
    (line,) = findings(tmp_path, "--fabric=efa")
    assert line.startswith("warning peer: EFA's driver does not reach the GPUs' memory (p2p of rdmap0 is NA)")
    write(tmp_path / "sys/class/infiniband/rdmap0/device/p2p", "NVIDIA\n")
    assert findings(tmp_path, "--fabric=efa") == []
    write(tmp_path / "sys/class/infiniband/rdmap0/device/p2p", "NA\n")
    write(tmp_path / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05")
    assert findings(tmp_path, "--fabric=efa") == []


def test_gdrcopy_without_its_driver(tmp_path: Path) -> None:
    gpus = ["/dev/nvidia0"]
    ((severity, name, _),) = node_check.check_gdrcopy(str(tmp_path), gpus, has_gdrcopy=True)
    assert (severity, name) == ("warning", "gdrcopy")
    assert not list(node_check.check_gdrcopy(str(tmp_path), gpus, has_gdrcopy=False))
    write(tmp_path / "dev/gdrdrv")
    assert not list(node_check.check_gdrcopy(str(tmp_path), gpus, has_gdrcopy=True))
    assert node_check.has_library("libc.so.6")
    assert not node_check.has_library("libabsent.so.1")


def test_a_version_of_nccl_and_what_it_looks_for(tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, LOCAL, MAPPED, MAPPED))
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    devices = node_check.read_devices(str(tmp_path))

    def sentences(nccl: tuple[int, int, int] | None, index: str = "") -> list[str]:
        yielded = [
            *node_check.check_gids(devices, index, nccl),
            *node_check.check_gpudirect(str(tmp_path), devices, ["/dev/nvidia0"], nccl),
        ]
        return [sentence for _, _, sentence in yielded]

    gid, module = sentences((2, 20, 5))
    assert gid == "NCCL before 2.21 takes GID 0 of mlx5_0, which is not routed: NCCL_IB_GID_INDEX=3"
    assert module.startswith("NCCL before 2.23.4 does not see nvidia_peermem where ")
    assert sentences((2, 22, 3)) == [module]
    assert sentences((2, 20, 5), "3") == [module]
    assert sentences((2, 23, 4)) == sentences(None) == []
    write(tmp_path / "sys/kernel/mm/memory_peers/nv_mem/version", "1.0")
    assert sentences((2, 22, 3)) == []


def test_locked_memory(tmp_path: Path) -> None:
    device(tmp_path, "rdmap0", "efa")
    assert findings(tmp_path, "--fabric=efa") == []
    write(tmp_path / "proc/self/status", "CapEff:\t00000000a80425fb\n")  # Docker's own
    assert "error memlock: locked memory is limited to 64 KiB: --ulimit memlock=-1:-1, or IPC_LOCK" in findings(
        tmp_path, "--fabric=efa"
    )


def test_pci_acs(tmp_path: Path) -> None:
    """A bridge's configuration space as PCI Express writes it: AER at 0x100, then ACS with its control register."""
    bridge = tmp_path / "sys/bus/pci/devices/0000:00:01.0"
    write(bridge / "class", "0x060400")
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x148 << 20 | 1 << 16 | 0x0001)
    struct.pack_into("<IHH", space, 0x148, 1 << 16 | 0x000D, 0x1F, 0x1D)
    (bridge / "config").write_bytes(space)
    assert node_check.acs_bridges(str(tmp_path)) == ["0000:00:01.0"]
    struct.pack_into("<H", space, 0x14E, 0x01)
    (bridge / "config").write_bytes(space)
    assert node_check.acs_bridges(str(tmp_path)) == []
    (bridge / "config").write_bytes(space[:64])
    assert node_check.acs_bridges(str(tmp_path)) == []


@pytest.mark.parametrize(
    ("setting", "chosen"),
    [
        ("", "ib0"),
        ("eth", "eth0"),
        ("=eth", None),
        ("^lo,docker,ib", "eth0"),
        ("ens", None),
        ("docker", "docker0"),
    ],
)
def test_the_interface_that_nccl_starts_over(setting: str, chosen: str | None) -> None:
    names = {"lo": "127.0.0.1", "docker0": "172.17.0.1", "eth0": "192.0.2.1", "ib0": "192.0.2.9"}
    row = node_check.bootstrap_interface([(name, address, True) for name, address in names.items()], setting)
    assert (row and row[0]) == chosen


BRIDGE = "br-4c1f0e2ad9b7"  # as Docker names the bridge of a network


@pytest.mark.parametrize(
    ("rows", "nccl", "chosen"),
    [
        (("lo", "docker0", "eth0"), None, "eth0"),
        (("lo", "docker0"), None, "docker0"),
        (("lo", "virbr0", "eth0"), (2, 30, 7), "eth0"),
        (("lo", "virbr0", "eth0"), (2, 18, 3), "virbr0"),
        (("lo", BRIDGE, "eth0"), (2, 30, 7), BRIDGE),
        (("lo", f"{BRIDGE} down", "eth0"), (2, 30, 7), "eth0"),
        (("lo", f"{BRIDGE} down", "eth0"), None, "eth0"),
        (("lo", f"{BRIDGE} down", "eth0"), (2, 27, 7), BRIDGE),
        (("lo", "ib0 down", "tailscale0", "eth0"), (2, 28, 3), "tailscale0"),
        ((), None, None),
    ],
)
def test_the_rule_of_a_version_of_nccl(
    rows: tuple[str, ...], nccl: tuple[int, int, int] | None, chosen: str | None
) -> None:
    """NVIDIA/nccl, src/misc/socket.cc: 2.18.3 to 2.27.7, then 2.28.3 to 2.30.7."""
    interfaces = [(row.split()[0], "192.0.2.1", not row.endswith(" down")) for row in rows]
    row = node_check.bootstrap_interface(interfaces, "", nccl)
    assert (row and row[0]) == chosen


@pytest.mark.parametrize(
    ("name", "address", "setting", "expected"),
    [
        ("lo", "127.0.0.1", "", ("error", "which other nodes do not reach")),
        ("docker0", "172.17.0.1", "docker0", ("warning", "which other nodes do not reach")),
        (BRIDGE, "172.18.0.1", "", ("warning", "which other nodes do not reach")),
        ("br-ex", "192.0.2.1", "", None),  # OVN's, with the node's own address
        ("br0", "192.0.2.1", "", None),
        ("tailscale0", "100.64.0.7", "", ("warning", "a VPN's")),
        ("tailscale0", "100.64.0.7", "tailscale0", None),
        ("wg0", "10.8.0.2", "", ("warning", "a VPN's")),
        ("tunl0", "10.8.0.2", "", None),  # Calico's, between the nodes
        ("enp1s0f0np0", "169.254.7.1", "", None),  # a cable between two DGX Spark
    ],
)
def test_interfaces_that_lead_to_no_other_node(
    name: str, address: str, setting: str, expected: tuple[str, str] | None
) -> None:
    yielded = list(node_check.check_bootstrap((name, address, True), setting, 2))
    assert not list(node_check.check_bootstrap((name, address, True), setting, 1))
    assert [severity for severity, _, _ in yielded] == ([expected[0]] if expected else [])
    assert all(expected and f"NCCL will start over {name} ({address}), {expected[1]}" in row[2] for row in yielded)


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("ip"), reason="only root may make a network")
def test_interfaces_of_a_network_of_its_own() -> None:
    """A bridge without a link comes before the node's own interface, as after a restart of the network."""
    setup = f"""ip link set lo up
ip link add {BRIDGE} type veth peer name port0 && ip addr add 172.18.0.1/16 dev {BRIDGE} && ip link set {BRIDGE} up
ip link add eth0 type veth peer name eth1 && ip addr add 192.0.2.1/24 dev eth0
ip link set eth0 up && ip link set eth1 up
until ip link show {BRIDGE} | grep -q NO-CARRIER && ! ip link show eth0 | grep -q NO-CARRIER; do sleep 0.1; done
exec "$@"
"""
    program = (
        "from rdma_images.jobs.node import node_check\nrows = node_check.read_interfaces()\nprint(rows)\n"
        "print([node_check.bootstrap_interface(rows, '', nccl)[0] for nccl in ((2, 27, 7), (2, 30, 7))])"
    )
    command = ["unshare", "--net", "sh", "-ec", setup, "sh", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [("lo", "127.0.0.1", True), (BRIDGE, "172.18.0.1", False), ("eth0", "192.0.2.1", True)]
    assert done.stdout.splitlines() == [str(rows), str([BRIDGE, "eth0"])], done.stderr


def test_an_interface_inside_the_node(tmp_path: Path) -> None:
    lines = findings(tmp_path, "--nodes=2", NCCL_SOCKET_IFNAME="lo")
    assert any(line.startswith("error interface: NCCL will start over lo (127.0.0.1), which other") for line in lines)
    assert "error interface: NCCL_SOCKET_IFNAME=none fits no interface that is up" in findings(
        tmp_path, NCCL_SOCKET_IFNAME="none"
    )


ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eno1\t00000000\t0100A8C0\t0003\t0\t0\t{0}\t00000000\t0\t0\t0
eno1\t0000A8C0\t00000000\t0001\t0\t0\t{0}\t00F0FFFF\t0\t0\t0
enp37s0f0\t0000A8C0\t00000000\t0001\t0\t0\t{1}\t00F0FFFF\t0\t0\t0
"""


@pytest.mark.parametrize(
    ("metrics", "chosen", "taken"),
    [
        ((0, 0), "eno1", ""),
        ((0, 0), "enp37s0f0", "eno1"),
        ((101, 100), "eno1", "enp37s0f0"),
        ((101, 100), "enp37s0f0", ""),
    ],
)
def test_two_interfaces_of_one_network(tmp_path: Path, metrics: tuple[int, int], chosen: str, taken: str) -> None:
    write(tmp_path / "proc/net/route", ROUTES.format(*metrics))
    sentences = [sentence for _, _, sentence in node_check.check_route(str(tmp_path), (chosen, "192.168.0.1", True))]
    expected = f"NCCL starts over {chosen}, and the kernel sends to its network over {taken}"
    assert [sentence.startswith(expected) for sentence in sentences] == ([True] if taken else [])


def test_a_service_mesh_in_the_pod(tmp_path: Path) -> None:
    row = "   {}: 00000000:{} 00000000:0000 {} 00000000:00000000 00:00000000 00000000  1337        0 1\n"
    write(tmp_path / "proc/net/tcp", "".join(row.format(n, port, "0A") for n, port in enumerate(("3A99", "3A9E"))))
    assert any(line.startswith("warning proxy: Istio's proxy takes") for line in findings(tmp_path, "--nodes=2"))
    write(tmp_path / "proc/net/tcp", row.format(0, "3A99", "0A") + row.format(1, "3A9E", "01"))
    assert not any("proxy" in line for line in findings(tmp_path, "--nodes=2"))


RAILS = [("mlx5_0", "lo", "127.0.0.1"), ("mlx5_1", "lo", "127.0.0.1")]


@pytest.mark.parametrize(
    ("reached", "cross", "sentence"),
    [
        ({(0, 0), (0, 1), (1, 0), (1, 1)}, "", ""),
        ({(0, 0), (1, 1)}, "", "mlx5_0 reaches mlx5_0 of n2 and not mlx5_1: rails are apart, set NCCL_CROSS_NIC=0"),
        ({(0, 0), (1, 1)}, "0", ""),
        ({(1, 0), (1, 1)}, "", "mlx5_0 does not reach mlx5_0 of n2 over TCP, at 192.0.2.1"),
    ],
)
def test_rails(reached: set[tuple[int, int]], cross: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_CROSS_NIC", cross)
    monkeypatch.setattr(node_check, "reached_rails", lambda *_: reached)
    theirs = [["mlx5_0", "192.0.2.1", 1], ["mlx5_1", "192.0.2.2", 1]]
    sentences = [text for _, _, text in node_check.check_rails(RAILS, "n2", theirs)]
    assert sentences == ([sentence] if sentence else [])


def test_which_adapters_are_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
        free.close()
        theirs = [["mlx5_0", "127.0.0.1", server.getsockname()[1]], ["mlx5_1", "127.0.0.1", closed]]
        assert node_check.reached_rails(RAILS, theirs) == {(0, 0), (1, 0)}


@pytest.mark.parametrize(
    ("variables", "count", "finding"),
    [
        ({}, 8, ""),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 2, ""),
        ({"CUDA_VISIBLE_DEVICES": "3"}, 0, ""),
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
    """As in Lightning-AI/pytorch-lightning issue 16828 and snakemake/snakemake-executor-plugin-slurm issue 316."""
    findings = [f"{severity} {sentence}" for severity, _, sentence in node_check.check_visible_gpus(variables, count)]
    assert len(findings) == bool(finding)
    assert all(sentence.startswith(finding) for sentence in findings)


def test_addresses_that_nodes_share() -> None:
    """As in NVIDIA/nccl issue 697: NCCL's sockets take the bridges of Docker, too."""
    own = [("bond0", "10.0.0.1", True), ("br-1", "172.18.0.1", True)]
    peer = [["bond0", "10.0.0.2", True], ["br-1", "172.18.0.1", True]]
    ((severity, _, sentence),) = node_check.check_shared_addresses(own, "n2", peer, "10.0.0.2")
    assert severity == "warning"
    assert sentence == (
        "NCCL's sockets use br-1 (172.18.0.1), too, and n2 has the same addresses: set NCCL_SOCKET_IFNAME=bond0"
    )
    assert not list(node_check.check_shared_addresses(own[:1], "n2", peer, "10.0.0.2"))


VETH = """\
fe800000000000000000000000000001 05 40 20 80 veth75fa783
fe800000000000000000000000000002 02 40 20 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
"""


@pytest.mark.parametrize(
    ("table", "setting", "family", "expected"),
    [
        (
            VETH,
            "",
            "",
            "warning NCCL's sockets use veth75fa783 (fe80::1), too, which other nodes do not reach: set NCC",
        ),
        (VETH, "eth0", "", ""),
        (VETH, "", "AF_INET", ""),
        (VETH.replace("veth75fa783", "eth1"), "", "", ""),
        ("", "", "", ""),
        ("", "", "AF_INET6", "error NCCL_SOCKET_FAMILY=AF_INET6, and no interface has an address of IPv6"),
    ],
)
def test_interfaces_of_ipv6(tmp_path: Path, table: str, setting: str, family: str, expected: str) -> None:
    """As in pytorch/pytorch issue 68893 and anhvth/opensloth pull request 16."""
    write(tmp_path / "proc/net/if_inet6", table)
    rows = node_check.ipv6_interfaces(str(tmp_path))
    findings = node_check.check_ipv6([("eth0", "10.0.0.1", True)], rows, setting, family)
    sentences = [f"{severity} {sentence}" for severity, _, sentence in findings]
    assert [text[: len(expected)] for text in sentences] == ([expected] if expected else [])


def meet(monkeypatch: pytest.MonkeyPatch, *facts: dict[str, str]) -> list[list[str]]:
    """Return the sentences of nodes that meet, each a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(node_check, "PORT", free.getsockname()[1])
    readers = []
    for rank, node in enumerate(facts):
        read_end, write_end = os.pipe()
        if not os.fork():
            meeting = node_check.Meeting(node, "127.0.0.1", len(facts), rank, "127.0.0.1")
            os.write(write_end, "".join(f"{sentence}\n" for _, _, sentence in meeting.findings()).encode())
            meeting.wait_for_neighbour()
            os._exit(0)
        os.close(write_end)
        readers.append(read_end)
    texts = [os.fdopen(read_end).read().splitlines() for read_end in readers]
    for _ in facts:
        os.wait()
    return texts


def test_nodes_meet_and_say_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = meet(
        monkeypatch, {"node": "n1", "MTU": "9000"}, {"node": "n2", "MTU": "1500"}, {"node": "n3", "MTU": "9000"}
    )
    assert differences == [["MTU differs: 9000 on 2 nodes; 1500 on n2"], [], []]


def test_a_clock_that_is_off_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class FirstAhead(node_check.Meeting):
        def collect(self) -> dict[str, object]:
            ahead = time.time() + 100
            monkeypatch.setattr(time, "time", lambda: ahead)
            return super().collect()

    monkeypatch.setattr(node_check, "Meeting", FirstAhead)
    sentences, _ = meet(monkeypatch, {"node": "n1"}, {"node": "n2"})
    assert sentences in (["the clock of n2 is -100 s off"], ["the clock of n2 is -99 s off"])  # it may come later


def test_the_number_of_usable_devices_is_compared(tmp_path: Path) -> None:
    facts = []
    for name, usable in (("n1", True), ("n2", False)):
        device(tmp_path / name, "erdma_0", "erdma")
        device(tmp_path / name, "erdma_1", "erdma", usable=usable)
        root = str(tmp_path / name)
        facts.append(node_check.node_facts(root, node_check.read_devices(root), name, (2, 30, 7)))
    assert node_check.describe_differences(facts) == ["number of usable RDMA devices differs: 2 on 1 nodes; 1 on n2"]
    facts[1].update({"NCCL": "2.28.9", "torch": "2.15.0"})
    differences = node_check.describe_differences(facts)
    assert "NCCL differs: 2.30.7 on 1 nodes; 2.28.9 on n2" in differences
    assert "torch differs:  on 1 nodes; 2.15.0 on n2" in differences


def test_a_node_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_check, "MEETING_SECONDS", 0.5)
    monkeypatch.setattr(node_check, "PORT", 0)
    meeting = node_check.Meeting({"node": "n1"}, "127.0.0.1", 2, 0, "127.0.0.1")
    ((severity, _, sentence),) = meeting.findings()
    assert (severity, sentence) == ("warning", "not compared with the other nodes: of 2 nodes [1] did not come in 0 s")


def test_a_second_first_node_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in NVIDIA/nvidia-resiliency-ext issue 142: both nodes say that they are node 0."""
    monkeypatch.setattr(node_check, "MEETING_SECONDS", 0.5)
    monkeypatch.setattr(node_check, "PORT", 0)
    meeting = node_check.Meeting({"node": "n2"}, "127.0.0.1", 2, 0, "203.0.113.7")
    ((_, _, sentence),) = meeting.findings()
    assert sentence.endswith(
        "[1] did not come in 0 s; 203.0.113.7 is no address of this node, which says that it is node 0: each node "
        "needs its number"
    )


def test_two_nodes_of_one_number_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(node_check, "PORT", free.getsockname()[1])
    first = node_check.Meeting({"node": "n1"}, "127.0.0.1", 3, 0, "127.0.0.1")
    others = [node_check.Meeting({"node": name}, "127.0.0.1", 3, 1, "127.0.0.1") for name in ("n2", "n3")]
    threads = [threading.Thread(target=lambda meeting=meeting: list(meeting.findings())) for meeting in others]
    for thread in threads:
        thread.start()
    ((severity, _, sentence),) = first.findings()
    for thread in threads:
        thread.join()
    assert severity == "warning"
    assert re.search(r"n[23] and n[23] both say that they are node 1", sentence)


def test_a_node_whose_number_the_job_does_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(node_check, "PORT", free.getsockname()[1])
    first, other = (node_check.Meeting({"node": f"n{rank}"}, "127.0.0.1", 2, rank, "127.0.0.1") for rank in (0, 2))
    thread = threading.Thread(target=lambda: list(other.findings()))
    thread.start()
    ((_, _, sentence),) = first.findings()
    thread.join()
    assert "n2 says that it is node 2 of 2" in sentence


def test_who_is_waited_for_is_said_early(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(node_check, "MEETING_SECONDS", 1.0)
    monkeypatch.setattr(node_check, "NOTE_SECONDS", 0.1)
    monkeypatch.setattr(node_check, "PORT", 0)
    assert len(list(node_check.Meeting({"node": "n1"}, "127.0.0.1", 3, 0, "127.0.0.1").findings())) == 1
    assert "note neighbours: of 3 nodes [1, 2] did not come in 0 s; waiting" in capsys.readouterr().out
    assert len(list(node_check.Meeting({"node": "n2"}, "127.0.0.1", 3, 1, "n1.invalid").findings())) == 1
    assert "note neighbours: the first node, n1.invalid, is not resolved here so far: " in capsys.readouterr().out


def test_what_scans_ports_does_not_keep_the_nodes_from_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in NVIDIA/nccl issue 1612."""
    monkeypatch.setattr(node_check, "LEAVING_SECONDS", 0.5)
    monkeypatch.setattr(node_check, "MEETING_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(node_check, "PORT", free.getsockname()[1])
    meeting = node_check.Meeting({"node": "n1"}, "127.0.0.1", 2, 0, "127.0.0.1")
    has_ended = threading.Event()

    def scan() -> None:
        while not has_ended.wait(0.05):
            for port in (node_check.PORT, meeting.listener.getsockname()[1]):
                with socket.socket() as probe:
                    probe.connect_ex(("127.0.0.1", port))

    def meet() -> None:
        list(meeting.findings())
        meeting.wait_for_neighbour()
        has_ended.set()

    scanner, node = threading.Thread(target=scan, daemon=True), threading.Thread(target=meet, daemon=True)
    scanner.start()
    node.start()
    assert has_ended.wait(20)


def test_a_neighbour_that_is_not_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = node_check.Meeting({"node": "n1"}, "127.0.0.1", 2, 1, "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()
    monkeypatch.setattr(meeting, "report", lambda: {"neighbour": ("n2", closed, [], None), "differences": []})
    ((severity, _, sentence),) = meeting.findings()
    assert severity == "error"
    assert sentence.startswith("n2 is not reached at 127.0.0.1, over which NCCL starts: ")


@pytest.mark.parametrize(
    ("error", "is_firewall"),
    [
        (ConnectionRefusedError(111, "Connection refused"), False),
        (TimeoutError("timed out"), True),
        (OSError(113, "No route to host"), True),  # as an ICMP of a firewall says it
    ],
)
def test_what_a_firewall_drops(error: OSError, is_firewall: bool) -> None:
    assert ("a firewall or security group may drop it" in node_check.describe_connection_error(error)) == is_firewall


def test_a_first_node_that_gives_no_answer_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a third node does not come: the first one closes the connections that it has."""
    with socket.create_server(("127.0.0.1", 0)) as first:
        monkeypatch.setattr(node_check, "PORT", first.getsockname()[1])
        meeting = node_check.Meeting({"node": "n2"}, "127.0.0.1", 3, 1, "127.0.0.1")
        closing = threading.Thread(target=lambda: first.accept()[0].makefile().readline())
        closing.start()
        ((severity, _, sentence),) = meeting.findings()
        closing.join()
    assert severity == "warning"
    assert sentence.startswith("not compared with the other nodes: the first node closed the connection")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.0\r\n\r\n", b"[1]\n", b'{"node": "n"}\n'])
def test_what_is_no_node_does_not_end_the_meeting(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.close()
        assert node_check.read_facts(ours) is None


def test_a_neighbour_that_closes_before_a_large_message_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_check, "LARGE_MESSAGE", 1024)  # less than the buffers of a connection take
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = socket.create_connection(server.getsockname())
        closing = threading.Thread(target=lambda: server.accept()[0].makefile("rb").read(1024))
        closing.start()
        ((severity, _, sentence),) = node_check.check_large_message(connection, "n2")
        closing.join()
    assert severity == "error"
    assert "n2 is reached, and a message of 1 KiB does not arrive" in sentence


def test_a_neighbour_that_gets_no_large_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in NVIDIA/nccl-tests issue 236: small messages arrive, and large ones do not."""
    meeting = node_check.Meeting({"node": "n1"}, "127.0.0.1", 2, 1, "127.0.0.1")
    monkeypatch.setattr(node_check, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        answer: dict[str, object] = {"neighbour": ("n2", silent.getsockname(), [], None), "differences": []}
        monkeypatch.setattr(meeting, "report", lambda: answer)
        ((severity, _, sentence),) = meeting.findings()
    assert severity == "error"
    assert sentence.startswith("n2 is reached, and a message of 256 KiB does not arrive (timed out): compare the MTU")


def test_a_neighbour_whose_announced_address_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ray-project/ray issue 60817: vLLM takes the address of the default route."""
    meeting = node_check.Meeting({"node": "n1"}, "127.0.0.1", 2, 1, "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()
    answer: dict[str, object] = {"neighbour": ("n2", meeting.facts["address"], [], closed), "differences": []}
    monkeypatch.setattr(meeting, "report", lambda: answer)
    ((severity, _, sentence),) = meeting.findings()
    assert severity == "warning"
    assert sentence.startswith("n2 is not reached at 127.0.0.1, which vLLM, SGLang and Ray announce there (")


@pytest.mark.parametrize("address", ["", "127.0.0.1", "203.0.113.7"])
def test_an_announced_address_that_is_not_listened_on(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """There is no default route; it is the address that NCCL takes; no interface has it."""
    monkeypatch.setattr(node_check, "announced_address", lambda: address)
    assert node_check.Meeting({"node": "n1"}, "127.0.0.1", 2, 0, "127.0.0.1").facts["announced"] is None


@pytest.mark.parametrize(
    ("places", "setting", "count"),
    [
        (("0000:01:00.0", "0002:01:00.0"), "mlx5_0", 1),
        (("0000:01:00.0", "0002:01:00.0"), "mlx5", 0),
        (("0000:01:00.0", "0002:01:00.0"), "", 0),
        (("0000:01:00.0", "0000:01:00.1"), "mlx5_0", 0),  # another port
    ],
)
def test_half_of_a_port(tmp_path: Path, places: tuple[str, str], setting: str, count: int) -> None:
    """As in NVIDIA/dgx-spark-playbooks pull request 103."""
    for number in range(2):
        device(tmp_path, f"mlx5_{number}", "mlx5_core")
        write(tmp_path / f"sys/class/infiniband/mlx5_{number}/sys_image_guid", "3c6d:6603:00a1:b2c4")
    devices = node_check.read_devices(str(tmp_path))
    for half, place in zip(devices, places, strict=True):
        half.pci = place
    assert len(list(node_check.check_names_of_devices(str(tmp_path), devices, "NCCL_IB_HCA", setting))) == count


@pytest.mark.parametrize(("refused", "count", "errors"), [(0, 8, 0), (1, 8, 1), (4, 4, 0), (8, 0, 1)])
def test_gpus_that_a_cgroup_keeps_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: int, count: int, errors: int
) -> None:
    """As after systemctl daemon-reload; Slurm lets a job open its own GPUs alone."""
    gpus = [str(tmp_path / f"nvidia{number}") for number in range(8)]

    def open_file(path: str, _: int) -> int:
        if gpus.index(path) < refused:
            raise PermissionError(1, "Operation not permitted")
        return os.dup(0)

    monkeypatch.setattr(os, "open", open_file)
    assert len(list(node_check.check_device_files(gpus, count))) == errors


@pytest.mark.parametrize(("variables", "severity"), [({"SLURM_JOB_ID": "7"}, "error"), ({}, "warning")])
def test_a_first_node_whose_name_is_not_resolved(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], severity: str
) -> None:
    monkeypatch.setattr(node_check, "MEETING_SECONDS", 0.1)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    meeting = node_check.Meeting({"node": "n2"}, "127.0.0.1", 2, 1, "n1.invalid")
    ((found_severity, name, sentence),) = meeting.findings()
    assert (found_severity, name) == (severity, "names")
    assert sentence.startswith("the name of the first node, n1.invalid, is not resolved here (")


# What a node has left, and the state of its parts.


def test_a_port_of_ethernet_beside_ports_of_infiniband(tmp_path: Path) -> None:
    for name in ("mlx5_0", "mlx5_1", "mlx5_2"):
        device(tmp_path, name, "mlx5_core", (LOCAL, MAPPED))
    for name in ("mlx5_0", "mlx5_1"):
        write(tmp_path / f"sys/class/infiniband/{name}/ports/1/link_layer", "InfiniBand")
    expected = (
        "warning devices: NCCL takes mlx5_2 of Ethernet beside mlx5_0, mlx5_1 of InfiniBand, which do not reach each "
        "other: set NCCL_IB_HCA=mlx5_0,mlx5_1"
    )
    assert expected in findings(tmp_path, "--nodes=2")
    assert not any("beside" in line for line in findings(tmp_path, "--nodes=2", NCCL_IB_HCA="mlx5_0,mlx5_1"))
    assert not any("beside" in line for line in findings(tmp_path, "--nodes=1"))


def test_a_link_that_is_slower_than_its_neighbours(tmp_path: Path) -> None:
    for number, rate in enumerate(
        ["400 Gb/sec (4X NDR)", "400 Gb/sec (4X NDR)", "100 Gb/sec (1X NDR)", "25 Gb/sec (1X)"]
    ):
        device(tmp_path, f"mlx5_{number}", "mlx5_core", (LOCAL, MAPPED))
        folder = tmp_path / f"sys/class/infiniband/mlx5_{number}"
        write(folder / "ports/1/rate", rate)
        write(folder / "device/vendor", "0x15b3")
        write(folder / "device/device", "0x1017" if rate.startswith("25") else "0x1021")  # a card for storage
    lines = [line for line in findings(tmp_path) if " rates: " in line]
    assert lines == ["warning rates: the link of mlx5_2 is slower than that of the others, 400 Gb/s"]


@pytest.mark.parametrize(
    ("size", "free", "problem"),
    [
        (64 << 20, 64 << 20, "/dev/shm has 64 MiB: NCCL and data loaders need more"),
        (64 << 30, 32 << 30, ""),
        (
            64 << 30,
            12 << 20,
            "12 of 65536 MiB are free in /dev/shm: 1 files of ended processes fill it, as /dev/shm/nccl-a",
        ),
    ],
)
def test_files_that_fill_shared_memory(
    tmp_path: Path, size: int, free: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_check, "disk_space", lambda _: (size, free))
    write(tmp_path / "dev/shm/nccl-a")
    write(tmp_path / "dev/shm/nccl-b")
    write(tmp_path / "proc/7/maps", "7f00-7f10 rw-s 0 0:1 9 /dev/shm/nccl-b\n")
    sentences = [sentence for _, _, sentence in node_check.check_memory(str(tmp_path), [])]
    assert sentences == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("gpus", "nodes", "limit", "names"),
    [(8, 2, 64 << 30, []), (8, 2, 8 << 30, ["memory"]), (8, 64, 64 << 30, ["files"]), (0, 2, 1 << 30, [])],
)
def test_limits_of_a_container(
    tmp_path: Path, gpus: int, nodes: int, limit: int, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "sys/fs/cgroup/memory.max", f"{limit}\n")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert [name for _, name, _ in node_check.check_limits(str(tmp_path), gpus, nodes)] == names


def test_folders_that_jobs_write_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", "/models")
    monkeypatch.setenv("TMPDIR", "/scratch")
    monkeypatch.setattr(node_check, "disk_space", lambda folder: (1 << 40, 5 << 20 if folder == "/models" else 1 << 40))
    monkeypatch.setattr(os, "access", lambda folder, _: folder == "/models")
    assert [sentence for _, _, sentence in node_check.check_folders("")] == [
        "/scratch, TMPDIR, cannot be written by this user",
        "5 MiB are free in /models, HF_HOME",
    ]


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
            [("error", "GPU 0: NVSwitch's fabric has taken it in with an error, see Fabric in nvidia-smi -q")],
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
    found = [(severity, sentence) for severity, _, sentence in node_check.gpu_states(text)]
    assert found == expected


def test_errors_of_gpus_in_the_kernels_log(tmp_path: Path) -> None:
    write(tmp_path / "proc/uptime", "100000.00 1.00\n")
    write(
        tmp_path / "dev/kmsg",
        "4,1,99000000000,-;NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.\n"
        "4,2,99000000001,-;NVRM: Xid (PCI:0000:2a:00): 31, pid=1, MMU fault\n"
        "4,3,1000000,-;NVRM: Xid (PCI:0000:3a:00): 94, pid=1\n",
    )
    assert [sentence for _, _, sentence in node_check.check_kernel_log(str(tmp_path))] == [
        "the kernel's log has Xid 79 of GPU 0000:18:00 within a day"
    ]


@pytest.mark.parametrize(
    ("addresses", "rank", "expected"),
    [
        ({"own": "10.0.0.2", "first": "10.0.0.1"}, 1, []),
        ({"own": "127.0.1.1", "first": "10.0.0.1"}, 1, [("warning", "own, this node's name, is 127.0.1.1 here")]),
        ({"own": "", "first": "10.0.0.1"}, 1, [("warning", "own, this node's name, has no address here")]),
        ({"own": "10.9.9.9", "first": "10.0.0.1"}, 1, [("warning", "own, this node's name, is 10.9.9.9 here, which")]),
        ({"own": None, "first": "10.0.0.1"}, 1, [("warning", "own, this node's name, is not resolved within 3 s")]),
        ({"own": "10.0.0.2", "first": "127.0.1.1"}, 1, [("warning", "first, the first node's name, leads to this")]),
        ({"own": "10.0.0.2", "first": "127.0.1.1"}, 0, []),
    ],
)
def test_names_of_nodes(
    addresses: dict[str, str | None], rank: int, expected: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "own")
    monkeypatch.setattr(node_check, "resolve", addresses.__getitem__)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    found = list(node_check.check_names([("eth0", "10.0.0.2", True)], 2, rank, "first"))
    assert [
        (severity, sentence[: len(start)]) for (severity, _, sentence), (_, start) in zip(found, expected, strict=True)
    ] == expected


def test_a_port_in_use_on_the_first_node() -> None:
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        assert [name for _, name, _ in node_check.check_port(0, port)] == ["port"]
        assert not list(node_check.check_port(1, port))
    assert not list(node_check.check_port(0, "0"))


def test_settings_that_differ_between_nodes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_0")
    monkeypatch.setenv("NCCL_DEBUG_FILE", "/tmp/a")
    facts = node_check.node_facts("", [], "a")
    assert facts["NCCL_IB_HCA"] == "mlx5_0"
    assert "NCCL_DEBUG_FILE" not in facts
    other = {**facts, "node": "b"}
    del other["NCCL_IB_HCA"]
    assert node_check.describe_differences([facts, other]) == ["NCCL_IB_HCA differs: mlx5_0 on 1 nodes; nothing on b"]


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
    device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED))
    write(tmp_path / "sys/class/net/eth0/mtu", "1500")
    devices = node_check.read_devices(str(tmp_path))
    yielded = node_check.check_names_of_devices(str(tmp_path), devices, variable, setting)
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
    device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, LOCAL, MAPPED, MAPPED))
    device(tmp_path, "mlx5_1", "mlx5_core", (MAPPED, MAPPED, MAPPED, MAPPED, MAPPED, MAPPED))
    write(tmp_path / "sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106\n")
    found = [line for line in findings(tmp_path, **variables) if " gids: " in line or " devices: " in line]
    assert [line[: len(start)] for line, start in zip(found, lines, strict=True)] == lines


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
    device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED))
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
            write(path / f"{kind}_link_{name}", value)
    sentences = [text for _, _, text in node_check.check_pci_links(node_check.read_devices(str(tmp_path)))]
    assert [text.startswith(f"the PCI Express link of mlx5_0 has {sentence}") for text in sentences] == (
        [True] if sentence else []
    )


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ((), []),
        (("--nodes=2",), ["warning devices: the kernel has no RDMA device"]),
        (("--fabric=efa",), ["error devices: the kernel has no efa device"]),
    ],
)
def test_no_adapter_is_an_error_where_a_fabric_is_named(
    tmp_path: Path, arguments: tuple[str, ...], lines: list[str]
) -> None:
    write(tmp_path / "dev/nvidia0")
    found = [line for line in findings(tmp_path, *arguments) if " devices: " in line]
    assert [line[: len(start)] for line, start in zip(found, lines, strict=True)] == lines


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
    ],
)
def test_cuda_that_does_not_start(code: int, text: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_check, "has_library", lambda _: True)
    monkeypatch.setattr(node_check, "run_program", lambda *_: (code, text))
    sentences = [sentence for _, _, sentence in node_check.check_cuda("", ["/dev/nvidia0"])]
    assert [text[: len(start)] for text, start in zip(sentences, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("switch", "state", "count"), [(True, "inactive", 1), (True, "active", 0), (False, "inactive", 0)]
)
def test_a_fabric_manager_that_does_not_run(
    tmp_path: Path, switch: bool, state: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if switch:
        write(tmp_path / "dev/nvidia-nvswitch0")
    monkeypatch.setattr(node_check, "run_program", lambda *_: (3, f"{state}\n"))
    assert len(list(node_check.check_fabric_manager(str(tmp_path)))) == count


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
        write(tmp_path / "dev/nvidia-caps-imex-channels/channel0")
    text = f"    Fabric\n        State   : Completed\n        CliqueId   : 0\n        ClusterUUID    : {cluster}\n"
    assert len(list(node_check.check_imex(str(tmp_path), text, nodes))) == count


@pytest.mark.parametrize(("full_name", "count"), [("1.0.0.ip6.arpa.invalid", 1), ("localhost", 0), ("own", 0)])
def test_a_full_name_without_an_address(full_name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "own")
    monkeypatch.setattr(socket, "getfqdn", lambda _: full_name)
    assert len(list(node_check.check_full_name())) == count


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
    device(tmp_path, device_name, "mlx5_core", (LOCAL, MAPPED))
    assert len([line for line in findings(tmp_path, **variables) if "NVSHMEM's IBGDA" in line]) == count
