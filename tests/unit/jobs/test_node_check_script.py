"""The script that checks the nodes of any job: which node it takes itself for, by what its launcher says."""

import os
import subprocess
from pathlib import Path

import pytest

from rdma_images.jobs.write import render

CALLED = '#!/bin/sh\nwhile [ "${1#--fabric}" = "$1" ]; do shift; done\necho "$*" >> CALLS\n'


def calls(tmp_path: Path, fabric: str = "", gpus: int = 0, **variables: str) -> list[str]:
    """Return the options of the two checks, where a program in place of python3 writes them down."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text(CALLED.replace("CALLS", str(tmp_path / "calls")))
    (programs / "scontrol").write_text("#!/bin/sh\nprintf 'n7\\nn8\\n'\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", **variables}
    script = render.render_preflight(fabric, gpus)
    completed = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    lines = tmp_path / "calls"
    return lines.read_text().splitlines() if lines.exists() else []


@pytest.mark.parametrize(
    ("variables", "node"),
    [
        ({}, "--nodes=1 --rank=0 --master="),
        ({"SLURM_NNODES": "4", "SLURM_NODEID": "2", "SLURM_JOB_NODELIST": "n[7-8]"}, "--nodes=4 --rank=2 --master=n7"),
        ({"PET_NNODES": "2:4", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "m"}, "--nodes=2 --rank=1 --master=m"),
        ({"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "m"}, "--nodes=2 --rank=1 --master=m"),
        (
            {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "0", "LWS_LEADER_ADDRESS": "lead"},
            "--nodes=2 --rank=0 --master=lead",
        ),
        (
            {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"},
            "--nodes=2 --rank=1 --master=10.0.0.1",
        ),
    ],
)
def test_the_launcher_says_which_node_it_is(tmp_path: Path, variables: dict[str, str], node: str) -> None:
    node_check, all_reduce = calls(tmp_path, "efa", 8, **variables)
    assert node_check == f"--fabric=efa --gpus=8 {node}"
    assert all_reduce == f"--fabric=efa --gpus=8 {node}{'127.0.0.1' if node.endswith('=') else ''}"


def test_one_task_of_a_node_checks_it(tmp_path: Path) -> None:
    assert calls(tmp_path, SLURM_LOCALID="1") == []


def test_an_image_without_python_is_not_checked(tmp_path: Path) -> None:
    for name in ("sh", "head", "basename", "readlink"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    script = render.render_preflight("efa", 8).replace(":/usr/local/bin", "")
    completed = subprocess.run(["/bin/sh", "-c", script], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (completed.returncode, completed.stderr) == (0, "preflight.sh: no python3, so the node was not checked\n")


def test_nodes_without_a_first_one_are_refused() -> None:
    script = render.render_preflight("", 0)
    completed = subprocess.run(["sh", "-c", script], env={"NNODES": "2"}, capture_output=True, text=True)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert completed.stderr == (
        "preflight.sh: 2 nodes, and no MASTER_ADDR: set it to the name or address of the first node\n"
    )
