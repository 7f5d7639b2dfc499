"""A node's devices as the kernel's files show them, and the check of a node on them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from rdma_images.jobs.node import finding, node_check
from rdma_images.jobs.write import render

ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
LOCAL, MAPPED = "fe80:0000:0000:0000:0000:00ff:fe00:0001", "0000:0000:0000:0000:0000:ffff:c000:0202"


def write_file(path: Path, text: str = "") -> None:
    """Write a file and the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_device(
    root: Path, name: str, driver: str, gids: tuple[str, ...] = (), usable: bool = True, **files: str
) -> None:
    """Write an RDMA device as the kernel shows it in /sys/class/infiniband."""
    folder = root / "sys/class/infiniband" / name
    (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    verbs = f"uverbs{len(list(folder.parent.glob('*'))) if folder.parent.exists() else 0}"
    write_file(folder / "device/infiniband_verbs" / verbs / "dev", "231:192")
    (folder / "device/driver").symlink_to(root / "drivers" / driver)
    write_file(folder / "ports/1/state", files.get("state", "4: ACTIVE"))
    link_layer = "Unspecified" if driver == "efa" else "Ethernet"
    write_file(folder / "ports/1/link_layer", files.get("link_layer", link_layer))
    for index, gid in enumerate(gids):
        write_file(folder / f"ports/1/gids/{index}", gid)
        write_file(folder / f"ports/1/gid_attrs/types/{index}", "RoCE v2" if index % 2 else "IB/RoCE v1")
    if usable:
        write_file(root / "dev/infiniband" / verbs)
    write_file(root / "proc/self/status", "Name:\tpython3\nCapEff:\t00000000a80465fb\n")  # Docker's own, and IPC_LOCK


def run_check(root: Path, *arguments: str, user: int | None = None, **variables: str) -> list[str]:
    """Return what the node check prints, started as launchers do, without its last line."""
    done = subprocess.run(
        [
            "sh",
            "-c",
            'ulimit -l 64; exec "$@"',
            "sh",
            sys.executable if user is None else "/usr/bin/python3",  # others may not enter root's home
            "-E",
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
    assert last.startswith(f"{finding.NODE_CHECK} {socket.gethostname()} done in ")
    errors = [line for line in lines if line.split()[2] == "error"]
    assert done.returncode == int(bool(errors)), done.stderr
    return [line.split(maxsplit=2)[2] for line in lines]
