"""The preflight under the launchers of real jobs: Slurm's srun on two nodes, Open MPI's mpirun, torchrun.

NCCL and CUDA's driver are libraries in their place.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import engine as engines
from tests.e2e import slurm_parts, unpacked, validated
from tests.support import fake_nccl
from tests.support.preflight_parts import adapters, preflight

compiled = pytest.mark.skipif(not shutil.which("cc"), reason="the libraries are compiled")
pytestmark = [pytest.mark.e2e, pytest.mark.part("slurm"), compiled]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Provide a folder that stays visible where /root and pytest's folders do not."""
    with tempfile.TemporaryDirectory(prefix="preflight-e2e-") as name:
        yield Path(name)


def program(options: str) -> str:
    return f"{preflight()} --root={adapters()} {options} -- {sys.executable} {fake_nccl.folder()}/command.py"


def variables(network: str) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(fake_nccl.folder()), "FAKE_NETWORK": network}


def results(text: str) -> list[tuple[str, str]]:
    """Return the network and the exit code of each node's last line."""
    return re.findall(r"rdma-preflight \S+ result network: (\w+)[; ].*exit code (\d+)", text)


@unpacked.needs
@pytest.mark.parametrize(
    ("tasks", "network", "options", "outcome", "said"),
    [
        (1, "Libfabric", "--require efa", ("efa", "0"), "2 GPUs of 2 node(s)"),
        (2, "Libfabric", "--require efa", ("efa", "0"), "2 GPUs of 2 node(s)"),
        (2, "Socket", "--require efa", ("none", "96"), "error network: efa is required: the channels use TCP"),
        (
            2,
            "Socket",
            "--require efa --no-all-reduce",
            ("fallback", "97"),
            "the command was ended, since efa is required",
        ),
    ],
)
def test_slurms_tasks(
    folder: Path, tasks: int, network: str, options: str, outcome: tuple[str, str], said: str
) -> None:
    """One task on each node, and two: of these the first checks, and the other waits for it."""
    seconds = 60 if outcome[1] == "97" else 1
    srun = f"srun --kill-on-bad-exit=1 --nodes=2 --ntasks-per-node={tasks} --label"
    command = f"{srun} {program(f'{options} --gpus 1')} {seconds}"
    text = slurm_parts.run(command, folder, folder / "state", **variables(network))
    # srun may end the other node's preflight or command first, as --kill-on-bad-exit asks.
    ended = {outcome} | ({(outcome[0], "143")} if outcome[1] == "97" else set())
    assert len(results(text)) == 2 or outcome[1] == "96", text
    assert {outcome} <= set(results(text)) <= ended, text
    assert said in text
    assert text.count("the command is done") == (2 * tasks if outcome[1] == "0" else 0)


@unpacked.needs
@pytest.mark.parametrize(("network", "code"), [("Libfabric", 0), ("Socket", 97)])
def test_the_ranks_of_mpirun(network: str, code: int) -> None:
    tree = unpacked.tree("mpi", unpacked.MPI_PACKAGES)
    words = f"orterun --allow-run-as-root --oversubscribe -np 2 {program('--require efa')} {60 if code else 1}"
    script = f'mount -t overlay overlay -o "lowerdir={tree}/usr:/usr" /usr; exec {words}'
    environment = {**os.environ, **variables(network), "OPAL_PREFIX": "/usr"}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script], env=environment, capture_output=True, text=True, timeout=300
    )
    assert results(done.stdout) == [("fallback" if code else "efa", str(code))], done.stdout + done.stderr
    assert done.stdout.count("the command runs") in ((1, 2) if code else (2,))  # mpirun may end the other before
    assert (done.returncode == 0) == (code == 0)


def test_the_ranks_of_torchrun() -> None:
    """It takes the -- from before the command. The torchrun is that of the image, and so is the preflight."""
    command = f"rdma-preflight --root={adapters()} --require efa -- python {fake_nccl.folder()}/command.py 1"
    # A device's file has to open for writing, as in /dev.
    options = [f"--volume={fake_nccl.folder()}:{fake_nccl.folder()}:ro", f"--volume={adapters()}:{adapters()}"]
    options += ["--network=none", "--hostname=localhost"]
    options += [f"--env={name}={value}" for name, value in variables("Libfabric").items()]
    words = ["docker", "run", "--rm", *options, validated.good_image()]
    words += ["torchrun", "--nproc-per-node=2", "--no-python", *command.split()]
    done = subprocess.run(words, env=engines.ensure().environ(), capture_output=True, text=True, timeout=300)
    assert results(done.stdout) == [("efa", "0")], done.stdout + done.stderr
    assert done.stdout.count("the command is done") == 2
