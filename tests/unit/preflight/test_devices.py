"""The checks of RDMA devices and of limits of memory, on trees of the kernel's files."""

import os
import shutil
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from rdma_images.preflight import devices
from rdma_images.validate.probes import devices as probed_devices
from tests.support.preflight_parts import LOCAL, MAPPED, ZERO, run_check, write_device, write_file


@pytest.mark.parametrize(
    ("required", "present", "line"),
    [
        ("efa", [], "error devices: the kernel has no efa device"),
        ("any", [], "error devices: the kernel has no RDMA device"),
        ("", [], "warning hardware: neither a GPU nor an RDMA device is here"),
        ("efa", [("mlx5_0", "mlx5_core", True)], "error devices: the kernel has no efa device"),
        (
            "efa",
            [("rdmap0", "efa", False)],
            "error devices: the node has rdmap0, but this container's /dev/infiniband has none of them",
        ),
        ("erdma", [("erdma_0", "erdma", False)], "error devices: the node has erdma_0"),
        ("any", [("erdma_0", "erdma", False)], "error devices: the node has erdma_0"),
        ("efa", [("rdmap0", "efa", True), ("rdmap1", "efa", False)], "error devices: 1 of 4 adapters can be used here"),
    ],
)
def test_devices(tmp_path: Path, required: str, present: list[tuple[str, str, bool]], line: str) -> None:
    for name, driver, usable in present:
        write_device(tmp_path, name, driver, (LOCAL, MAPPED), usable=usable)
    lines = run_check(tmp_path, *([f"--require={required}", "--adapters=4"] if required else []))
    assert any(finding.startswith(line) for finding in lines)


@pytest.mark.skipif(
    os.getuid() != 0 or not Path("/usr/bin/python3").exists(), reason="only root may start it as another user"
)
@pytest.mark.parametrize(
    ("required", "closed", "lines"),
    [
        ("any", 0, []),
        ("any", 1, ["warning devices: 2 of 3 adapters can be used here: mlx5_0 cannot be opened: Permission denied"]),
        ("any", 2, ["error devices: 1 of 3 adapters can be used here: mlx5_0 cannot be opened: Permission denied"]),
        ("any", 3, ["error devices: mlx5_0 cannot be opened: Permission denied; this user has no right to its file"]),
        ("", 3, ["warning devices: mlx5_0 cannot be opened: Permission denied; this user has no right to its file"]),
    ],
)
def test_devices_that_the_user_may_not_open(tmp_path: Path, required: str, closed: int, lines: list[str]) -> None:
    for number in range(3):
        write_device(tmp_path, f"mlx5_{number}", "mlx5_core", (LOCAL, MAPPED))
    for number in range(3):
        (tmp_path / f"dev/infiniband/uverbs{number}").chmod(0o600 if number < closed else 0o666)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    arguments = (f"--require={required}", "--adapters=3") if required else ("--nodes=2",)
    shown = [line for line in run_check(tmp_path, *arguments, user=65534) if " devices: " in f" {line}"]
    assert [line[: len(start)] for line, start in zip(shown, lines, strict=True)] == lines


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("chattr"), reason="only root may make a file immutable")
def test_a_device_that_not_even_root_may_open(tmp_path: Path) -> None:
    """The kernel refuses to write an immutable file as a cgroup refuses a device: EPERM, whatever the mode."""
    write_device(tmp_path, "rdmap0", "efa")
    file = tmp_path / "dev/infiniband/uverbs0"
    subprocess.run(["chattr", "+i", str(file)], check=True)
    try:
        (line,) = (text for text in run_check(tmp_path, "--require=efa") if " devices: " in f" {text}")
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
    (line,) = (text for text in run_check(tmp_path, "--require=efa") if " devices: " in f" {text}")
    assert line.startswith("error devices: rdmap0 cannot be opened: No such device or address")


@pytest.mark.parametrize(
    ("gids", "index", "line"),
    [
        ((LOCAL, LOCAL), "", "error gids: mlx5_0 has no routed GID of RoCE v2"),
        ((LOCAL, MAPPED), "3", "error gids: NCCL_IB_GID_INDEX=3, and mlx5_0 has no such GID"),
        ((LOCAL, MAPPED, ZERO), "2", "error gids: NCCL_IB_GID_INDEX=2, and mlx5_0 has no such GID"),
        ((LOCAL, MAPPED), "0", "warning gids: NCCL_IB_GID_INDEX=0 is a link-local GID of mlx5_0"),
        ((LOCAL, MAPPED), "1", ""),
        ((LOCAL, MAPPED), "-1", ""),
    ],
)
def test_gids(tmp_path: Path, gids: tuple[str, ...], index: str, line: str) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", gids)
    lines = [text for text in run_check(tmp_path, NCCL_IB_GID_INDEX=index) if " gids: " in f" {text}"]
    assert [text.startswith(line) for text in lines] == ([True] if line else [])


def test_a_port_that_is_down_and_one_that_nccl_does_not_use(tmp_path: Path) -> None:
    write_device(tmp_path, "mlx5_0", "mlx5_core", (LOCAL, MAPPED))
    write_device(tmp_path, "mlx5_1", "mlx5_core", (LOCAL, MAPPED), state="1: DOWN")
    assert "error ports: the port is not active: mlx5_1" in run_check(tmp_path)
    assert run_check(tmp_path, NCCL_IB_HCA="mlx5_0") == []
    assert run_check(tmp_path, NCCL_IB_HCA="^mlx5_1") == []


def test_the_active_one_of_two_ports_counts(tmp_path: Path) -> None:
    write_device(tmp_path, "mlx4_0", "mlx4_core", state="1: DOWN")
    write_file(tmp_path / "sys/class/infiniband/mlx4_0/ports/2/state", "4: ACTIVE")
    write_file(tmp_path / "sys/class/infiniband/mlx4_0/ports/2/rate", "40 Gb/sec (4X FDR10)")
    write_file(tmp_path / "sys/class/infiniband/mlx4_0/ports/2/link_layer", "InfiniBand")
    (device,) = devices.read_devices(str(tmp_path))
    assert (device.state, device.link_layer) == ("4: ACTIVE", "InfiniBand")


IBV_DEVINFO = """hca_id:	erdma_0
	transport:			eRDMA (1)
		port:	1
			state:			PORT_ACTIVE (4)
			max_mtu:		4096 (5)
			active_mtu:		%s

hca_id:	erdma_1
		port:	1
			active_mtu:		4096 (5)
"""


@pytest.mark.parametrize(
    ("interface", "active", "expected", "sentences"),
    [
        ("8500", "", 8500, []),
        ("1500", "", 8500, ["the interface of erdma_0 has an MTU of 1500, and the job was made for 8500"]),
        ("", "4096 (5)", 8500, []),
        ("", "1024 (3)", 8500, ["erdma_0 has an active MTU of 1024, and over an interface with the job's MTU of 8500"]),
        ("", "1024 (3)", 0, []),
        ("", "", 8500, []),
    ],
)
def test_the_mtu_of_erdma(
    tmp_path: Path, interface: str, active: str, expected: int, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod sees no interface of the host's: libibverbs has the MTU that follows from it."""
    for name in ("erdma_0", "erdma_1"):
        write_device(tmp_path, name, "erdma", (LOCAL, MAPPED))
    if interface:
        for name, mtu in (("erdma_0", interface), ("erdma_1", "8500")):
            write_file(tmp_path / f"sys/class/infiniband/{name}/device/net/eth0/mtu", mtu)
    monkeypatch.setattr(devices, "run_program", lambda _: IBV_DEVINFO % active if active else "")
    found = list(devices.check_mtu(devices.read_devices(str(tmp_path)), expected))
    assert [row[2][: len(start)] for row, start in zip(found, sentences, strict=True)] == sentences


@pytest.mark.parametrize("bounding", ["00000000a80425fb", "00000000a80465fb"])
def test_locked_memory(tmp_path: Path, bounding: str) -> None:
    """Docker's own capabilities; a pod that adds IPC_LOCK gives it to a user other than root in CapBnd alone."""
    write_device(tmp_path, "rdmap0", "efa")
    assert run_check(tmp_path, "--require=efa") == []
    write_file(tmp_path / "proc/self/status", f"CapEff:\t00000000a80425fb\nCapBnd:\t{bounding}\n")
    (line,) = run_check(tmp_path, "--require=efa")
    assert line.startswith("error memlock: only 64 KiB of memory can be locked; RDMA needs no limit. Docker: --ulimit")


@pytest.mark.parametrize(
    ("size", "free", "sentences"),
    [
        (64 << 20, 64 << 20, ["64 of 64 MiB are free in /dev/shm: NCCL and data loaders need more"]),
        (64 << 30, 32 << 30, []),
        (64 << 30, 12 << 20, ["12 of 65536 MiB are free in /dev/shm: NCCL and data loaders need more"]),
    ],
)
def test_shared_memory(size: int, free: int, sentences: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stat = SimpleNamespace(f_blocks=size, f_bavail=free, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _: stat)
    assert [row[2] for row in devices.check_limits("", [])] == sentences


@pytest.mark.parametrize(("free", "count"), [("0", 1), ("5128", 0)])
def test_huge_pages_of_efa(tmp_path: Path, free: str, count: int) -> None:
    write_device(tmp_path, "rdmap0", "efa")
    meminfo = f"HugePages_Total:  5128\nHugePages_Free:   {free}\nHugepagesize:  2048 kB\n"
    write_file(tmp_path / "proc/meminfo", meminfo)
    assert len(run_check(tmp_path, "--require=efa")) == count
    assert probed_devices.huge_pages(meminfo) == {"total": 5128, "free": int(free), "bytes": 2 << 20}
