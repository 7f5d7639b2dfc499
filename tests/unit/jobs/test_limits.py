"""The check of memory, files and disk."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.jobs.node import limits
from tests.support.node_files import run_check, write_device, write_file


def test_locked_memory(tmp_path: Path) -> None:
    write_device(tmp_path, "rdmap0", "efa")
    assert run_check(tmp_path, "--fabric=efa") == []
    write_file(tmp_path / "proc/self/status", "CapEff:\t00000000a80425fb\n")  # Docker's own
    assert any(
        line.startswith("error memlock: locked memory is limited to 64 KiB: --ulimit memlock=-1:-1 of docker")
        for line in run_check(tmp_path, "--fabric=efa")
    )


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
    monkeypatch.setattr(limits, "disk_space", lambda _: (size, free))
    write_file(tmp_path / "dev/shm/nccl-a")
    write_file(tmp_path / "dev/shm/nccl-b")
    write_file(tmp_path / "proc/7/maps", "7f00-7f10 rw-s 0 0:1 9 /dev/shm/nccl-b\n")
    sentences = [sentence for _, _, sentence in limits.check_memory(str(tmp_path), [])]
    assert sentences == ([problem] if problem else [])


def test_a_small_shared_memory_beside_nvlink_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "disk_space", lambda _: (64 << 20, 64 << 20))
    assert list(limits.check_memory(str(tmp_path), [], is_alone=True)) == [
        ("note", "shm", "/dev/shm has 64 MiB: data loaders with worker processes need more")
    ]


@pytest.mark.parametrize(
    ("gpus", "nodes", "limit", "names"),
    [(8, 2, 64 << 30, []), (8, 2, 8 << 30, ["memory"]), (8, 64, 64 << 30, ["files"]), (0, 2, 1 << 30, [])],
)
def test_limits_of_a_container(
    tmp_path: Path, gpus: int, nodes: int, limit: int, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(tmp_path / "sys/fs/cgroup/memory.max", f"{limit}\n")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert [name for _, name, _ in limits.check_limits(str(tmp_path), gpus, nodes)] == names


@pytest.mark.parametrize(
    ("user", "limit", "pids", "count"),
    [(1000, 20, "max", 1), (1000, 4096, "max", 0), (0, 20, "max", 0), (0, 20, "100", 1), (1000, 20, "100", 2)],
)
def test_limits_of_threads(
    tmp_path: Path, user: int, limit: int, pids: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in verl-project/verl issue 719, and with Docker's --pids-limit."""
    write_file(tmp_path / "sys/fs/cgroup/pids.max", f"{pids}\n")
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert len(list(limits.check_threads(str(tmp_path), 8))) == count


def test_folders_that_jobs_write_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", "/models")
    monkeypatch.setenv("TMPDIR", "/scratch")
    monkeypatch.setattr(limits, "disk_space", lambda folder: (1 << 40, 5 << 20 if folder == "/models" else 1 << 40))
    monkeypatch.setattr(os, "access", lambda folder, _: folder == "/models")
    assert [sentence for _, _, sentence in limits.check_folders("")] == [
        "/scratch, TMPDIR, cannot be written by this user",
        "5 MiB are free in /models, HF_HOME",
    ]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")
def test_a_folder_that_nothing_is_loaded_from(tmp_path: Path) -> None:
    """As in pytorch/pytorch issue 91005."""
    program = "from rdma_images.jobs.node import limits; print(*(row[2] for row in limits.check_folders('')), sep='|')"
    mount = f'mount -t tmpfs -o noexec,size=2g none "{tmp_path}"; exec "$@"'
    command = ["unshare", "--mount", "sh", "-ec", mount, "sh", sys.executable, "-c", program]
    for name, count in (("TMPDIR", 1), ("TRITON_CACHE_DIR", 1), ("HF_HOME", 0)):
        environ = {**os.environ, "TMPDIR": "", name: str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
        assert done.stdout.count(f"{tmp_path}, {name}, is mounted noexec") == count, done.stderr
