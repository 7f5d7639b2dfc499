"""A node's devices as the kernel's files show them, and the preflight as an image has it, run on them."""

import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from rdma_images.build import preflight_folder

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


@cache
def adapters() -> Path:
    """Return a root with a GPU, an EFA and an eRDMA device, which other users may read."""
    root = Path(mkdtemp(prefix="adapters-"))
    root.chmod(0o755)
    write_file(root / "dev/nvidia0")
    write_device(root, "rdmap0", "efa")
    write_device(root, "erdma_0", "erdma", (LOCAL, MAPPED))
    return root


@cache
def preflight() -> Path:
    """Return the program in a folder as images have it, which other users may read."""
    folder = Path(mkdtemp(prefix="preflight-"))
    folder.chmod(0o755)
    preflight_folder.write(folder)
    return folder / "rdma-preflight"


def run_check(root: Path, *arguments: str, user: int | None = None, **variables: str) -> list[str]:
    """Return what the checks of one node print: "severity subject: sentence", without the last line."""
    limited = ("sh", "-c", 'ulimit -l 64; exec "$@"', "sh")
    done = subprocess.run(
        [*limited, str(preflight()), f"--root={root}", "--no-all-reduce", *arguments],
        # Others than root may not enter the folder of this Python.
        env={"PATH": "/usr/bin:/bin" if user else os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        user=user,
    )
    *lines, last = done.stdout.splitlines()
    assert " result network: " in last, done.stdout + done.stderr
    assert done.returncode == (96 if any(line.split()[2] == "error" for line in lines) else 0), done.stderr
    return [line.split(maxsplit=2)[2] for line in lines]
