"""A real training for Slurm: efa-pytorch as an OCI bundle, and a script for CPUs."""

import json
import os
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import validated

# Counts steps, and leaves each in CHECKPOINT_DIR; an argument STEP=HOW says what happens to rank 1 at that step, once.
TRAIN = """
import os, signal, sys, time
from pathlib import Path
import torch
import torch.distributed as dist

folder, fail = Path(os.environ["CHECKPOINT_DIR"]), dict(word.split("=") for word in sys.argv[1:])
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, checkpoint = dist.get_rank(), folder / "step"
start = int(checkpoint.read_text()) if checkpoint.exists() else 0
model = torch.nn.Linear(1, 1)
print(f"rank {rank} of {dist.get_world_size()} begins at step {start}, token of {len(os.environ['TOKEN'])}", flush=True)
for step in range(start, 8):
    loss = model(torch.ones(1, 1)).sum()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    if rank == 0:
        checkpoint.write_text(str(step + 1))
    dist.barrier()
    mark = folder / f"failed-at-{step}"
    if rank == 1 and str(step) in fail and not mark.exists():
        mark.touch()
        if fail[str(step)] != "wait":
            os.kill(os.getpid() if fail[str(step)] == "rank" else os.getppid(), signal.SIGKILL)
        time.sleep(600)  # until Slurm ends what torchrun left behind
print(f"rank {rank} ends at step 8", flush=True)
dist.destroy_process_group()
"""
SYSTEM_MOUNTS = (("proc", "proc"), ("dev", "none"), ("dev/shm", "tmpfs"), ("tmp", "tmpfs"))


@contextmanager
def bundle(folder: Path, image: str = "") -> Iterator[Path]:
    """Yield a folder with an image, by default efa-pytorch's, as an OCI bundle.

    Its files are those of a container that is there meanwhile.
    """
    engine, name = validated.engine(), f"training-{uuid.uuid4().hex[:8]}"

    def docker(*words: str) -> str:
        command = ["docker", *words]
        return subprocess.run(command, env=engine.environ(), capture_output=True, text=True, check=True).stdout

    docker(
        "run",
        "--detach",
        "--name",
        name,
        "--network=none",
        "--entrypoint=sleep",
        image or validated.good_image(),
        "infinity",
    )
    try:
        (container,) = json.loads(docker("inspect", name))
        merged = next(
            line.split()[1]
            for line in Path("/proc/mounts").read_text().splitlines()
            if container["Id"] in line.split()[1]
        )
        folder.mkdir()
        (folder / "hosts").write_text(f"127.0.0.1 localhost n1 n2 {socket.gethostname()}\n")
        mounts = [
            {"destination": f"/{to}", "type": kind, "source": f"/{to}" if kind == "none" else kind}
            | ({"options": ["rbind"]} if kind == "none" else {})
            for to, kind in SYSTEM_MOUNTS
        ]
        hosts = {"destination": "/etc/hosts", "type": "none", "source": str(folder / "hosts"), "options": ["rbind"]}
        process = {"user": {"uid": 0, "gid": 0}, "args": ["sh"], "cwd": "/", "env": container["Config"]["Env"]}
        config = {
            "ociVersion": "1.0.2",
            "process": process,
            "root": {"path": merged},
            "mounts": [*mounts, hosts],
            "linux": {"namespaces": [{"type": "mount"}]},
        }
        (folder / "config.json").write_text(json.dumps(config))
        yield folder
    finally:
        docker("rm", "--force", name)


def built_image(note: Path) -> str:
    """Return the name of the image that build.json is about."""
    return str(json.loads(note.read_text())["ref"])


def path_with(programs: Path) -> str:
    """Return a PATH on which Slurm's programs come first."""
    return f"{programs}:{os.environ['PATH']}"
