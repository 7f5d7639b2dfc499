"""The check of memory."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rdma_images.preflight import limits
from tests.support.preflight_parts import run_check, write_device, write_file


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
    assert [row[2] for row in limits.check_limits("", [])] == sentences


@pytest.mark.parametrize(("free", "count"), [("0", 1), ("5128", 0)])
def test_huge_pages_of_efa(tmp_path: Path, free: str, count: int) -> None:
    write_device(tmp_path, "rdmap0", "efa")
    write_file(tmp_path / "proc/meminfo", f"HugePages_Total:  5128\nHugePages_Free:   {free}\nHugepagesize:  2048 kB\n")
    assert len(run_check(tmp_path, "--require=efa")) == count
    assert limits.huge_pages(str(tmp_path)) == {"total": 5128, "free": int(free), "bytes": 2 << 20}
