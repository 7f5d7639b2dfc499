"""A real Slurm on this machine: Debian's packages, unpacked only, started by slurm.sh."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import unpacked
from tests.support import upstream

PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2", "libhwloc15"),
    *("libpmix2", "libfreeipmi17", "liblua5.1-0", "runc", "libslurm-dev"),
)
# A process namespace of its own ends whatever a job leaves running: it would answer the next job at the same ports.
START = (
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"),
    str(Path(__file__).parent / "slurm.sh"),
)


def tree() -> Path:
    """Return the packages' files."""
    return unpacked.tree("slurm", PACKAGES)


def pyxis(folder: Path) -> Path:
    """Return the plugin, compiled from pyxis' own repository against this Slurm."""
    folder.mkdir()
    packed = subprocess.run(
        ["git", "-C", Path(upstream.FOLDER) / "NVIDIA/pyxis", "archive", "HEAD"], capture_output=True, check=True
    )
    subprocess.run(["tar", "-x"], cwd=folder, input=packed.stdout, check=True)
    headers = f"-I{tree()}/usr/include"
    subprocess.run(["make"], cwd=folder, check=True, capture_output=True, env={**os.environ, "CPPFLAGS": headers})
    return folder / "spank_pyxis.so"


def run(command: str, folder: Path, state: Path, **environment: str) -> str:
    """Return what a shell command prints in `folder` while the two nodes are up."""
    start = [*START, str(tree()), str(state), "sh", "-c", command]
    done = subprocess.run(
        start, cwd=folder, capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )
    return done.stdout + done.stderr


PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct", "srun")


@contextmanager
def cluster(state: Path, nodes: int = 2, hosts: str = "") -> Iterator[Path]:
    """Start the nodes for a block; yield the folder of programs that reach them. `hosts` is a file for /etc/hosts."""
    start = [*START, str(tree()), str(state), "sh", "-c", "echo ready; cat"]
    environ = {**os.environ, "SLURM_NODES": str(nodes), "SLURM_HOSTS": hosts}
    with subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as running:
        assert running.stdin
        assert running.stdout
        assert running.stdout.readline() == "ready\n"
        programs = state / "bin"
        programs.mkdir()
        namespaces = f"--mount=/proc/{running.pid}/ns/mnt --pid=/proc/{running.pid}/ns/pid_for_children"
        enter = f'nsenter {namespaces} env --chdir="$PWD" SLURM_CONF={state}/etc/slurm.conf'
        for name in PROGRAMS:  # a job's script finds them first, too: it is in the namespaces already
            program = f'[ -z "$SLURM_JOB_ID" ] || exec /usr/bin/{name} "$@"\nexec {enter} /usr/bin/{name} "$@"'
            (programs / name).write_text(f"#!/bin/sh\n{program}\n")
            (programs / name).chmod(0o755)
        yield programs
        running.stdin.close()
