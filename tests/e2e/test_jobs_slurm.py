"""The generated sbatch script on a real Slurm: two nodes with eight GPUs each, under runc."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from rdma_images.jobs.write import create
from tests.e2e import slurm_parts, unpacked
from tests.support import job_parts as jobs
from tests.support import upstream

pytestmark = [pytest.mark.e2e, pytest.mark.part("slurm"), unpacked.needs]

# What the bundle has in the place of torchrun says how it was called.
TORCHRUN = """#!/bin/sh
echo "gpus $CUDA_VISIBLE_DEVICES network $NCCL_NET"
printf 'word %s\\n' "$@"
"""
# In the place of the image's preflight: this machine has no EFA.
PREFLIGHT = """#!/bin/sh
echo "preflight $*"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
SYSTEM = ("bin", "lib", "lib64", "usr")


def bundle(folder: Path, shared: Path) -> None:
    """Provide an OCI bundle of this machine's programs that sets NCCL_NET as our images do."""
    for name in (*SYSTEM, "proc", "dev", "tmp", "opt"):
        (folder / "rootfs" / name).mkdir(parents=True)
    for name, text in {"torchrun": TORCHRUN, "rdma-preflight": PREFLIGHT}.items():
        program = folder / "rootfs" / "opt" / name
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    mounts = {f"/{name}": os.path.realpath(f"/{name}") for name in SYSTEM}
    mounts |= {str(shared): str(shared), "/dev": "/dev"}
    (folder / "config.json").write_text(
        json.dumps(
            {
                "ociVersion": "1.0.2",
                "process": {
                    "user": {"uid": 0, "gid": 0},
                    "args": ["sh"],
                    "cwd": "/",
                    "env": ["PATH=/opt:/usr/bin:/bin", "NCCL_NET=Libfabric"],
                },
                "root": {"path": str(folder / "rootfs")},
                "mounts": [
                    {"destination": "/proc", "type": "proc", "source": "proc"},
                    *(
                        {"destination": destination, "type": "none", "source": source, "options": ["rbind"]}
                        for destination, source in mounts.items()
                    ),
                ],
                "linux": {"namespaces": [{"type": "mount"}]},
            }
        )
    )


def write_job(tmp_path: Path, **changes: Any) -> Path:
    (tmp_path / "bundle").mkdir()
    shared = tmp_path / "shared"
    parameters = {"runtime": "oci", "bundle": str(tmp_path / "bundle")}
    request = jobs.job_request("slurm", "efa", "torchrun", parameters=parameters, name="job", **changes)
    create.write_job(request, jobs.load_project(), str(shared))
    bundle(tmp_path / "bundle", shared)
    return shared


@pytest.mark.parametrize(("tcp", "network"), [(False, "Libfabric"), (True, "Socket")])
def test_it_runs_on_both_nodes_with_all_gpus(tmp_path: Path, tcp: bool, network: str) -> None:
    shared = write_job(tmp_path, tcp=tcp)
    output = slurm_parts.run("sbatch --wait job.sbatch", shared, tmp_path / "state")
    assert "Submitted batch job 1" in output
    (log,) = shared.glob("*.log")
    lines = [line.partition(": ")[2] for line in log.read_text().splitlines()]  # without the node of `srun --label`
    assert lines.count(f"gpus 0,1,2,3,4,5,6,7 network {network}") == 2
    assert lines.count("word --nnodes=2") == lines.count("word --nproc-per-node=8") == 2
    assert lines.count("word it's a test") == 2
    preflight = [line for line in lines if line.startswith("preflight --require efa --gpus 8 --nodes 1 --node 0 ")]
    assert len(preflight) == (0 if tcp else 2)


def test_slurm_refuses_what_the_nodes_do_not_have(tmp_path: Path) -> None:
    shared = write_job(tmp_path)
    output = slurm_parts.run(
        "for asked in --nodes=2 --nodes=3 --gpus-per-node=9; do sbatch --test-only $asked job.sbatch; done",
        shared,
        tmp_path / "state",
    )
    assert "to start at" in output
    assert output.count("Requested node configuration is not available") == 2


def test_the_script_for_pyxis_is_one_that_slurm_can_place(tmp_path: Path) -> None:
    """Its own options; --container-image is pyxis', and srun without it says so."""
    create.write_job(
        jobs.job_request("slurm", "efa", "mpirun", name="job"), jobs.load_project(), str(tmp_path / "shared")
    )
    output = slurm_parts.run(
        "sbatch --test-only job.sbatch; sbatch --wait job.sbatch; cat *.log", tmp_path / "shared", tmp_path / "state"
    )
    assert "to start at" in output
    assert "unrecognized option '--container-image" in output


@upstream.needs_repositories
def test_the_real_pyxis_takes_the_script(tmp_path: Path) -> None:
    """A rank a GPU, over TCP; without --container-env the image's NCCL_NET would win."""
    script = 'echo "rank $SLURM_PROCID of $SLURM_NTASKS network $NCCL_NET debug $NCCL_DEBUG"'
    request = jobs.job_request(
        "slurm", "efa", "mpirun", name="job", tcp=True, parameters={"mpi": "none"}, command=("/bin/sh", "-c", script)
    )
    create.write_job(request, jobs.load_project(), str(tmp_path / "shared"))
    calls = tmp_path / "calls"
    enroot = tmp_path / "bin" / "enroot"
    enroot.parent.mkdir()
    enroot.write_text((Path(__file__).parent / "enroot.sh").read_text().replace("ENROOT_CALLS", str(calls)))
    enroot.chmod(0o755)
    output = slurm_parts.run(
        "sed /--container-env/d job.sbatch > x.sbatch; sbatch --wait job.sbatch; sbatch --wait x.sbatch; cat *.log",
        tmp_path / "shared",
        tmp_path / "state",
        SLURM_PROGRAMS=str(enroot.parent),
        SLURM_SPANK=f"{slurm_parts.pyxis(tmp_path / 'pyxis')} runtime_path={tmp_path}/run",
    )
    ranks = sorted(line.partition(": ")[2] for line in output.splitlines() if ": rank " in line)
    expected = [
        f"rank {rank} of 16 network {network} debug INFO" for rank in range(16) for network in ("Libfabric", "Socket")
    ]
    assert ranks == sorted(expected), output
    assert f"import --output {tmp_path}" in calls.read_text()
    assert f"docker://{jobs.IMAGE}" in calls.read_text()
