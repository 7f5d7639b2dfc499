"""What Slurm's script does after an attempt with bad nodes, with programs in place of Slurm's."""

import os
import subprocess
from pathlib import Path

import pytest

from rdma_images.jobs.write.work import Work
from tests.support import job_parts as jobs

LOG = """0: rdma-images-node-check n0 warning differences: the driver of n3 is in error state
1: rdma-images-node-check n1 error memlock: locked memory is limited to 8192 KiB
2: rdma-images-node-check n2 error neighbour: n1 is not reached at 10.0.0.1
3: rdma-images-node-check n3 error memlock: locked memory is limited, an error neighbour: of others
"""
SCONTROL = """#!/bin/sh
case "$1 $2" in
  "show hostnames") printf '%s\\n' n0 n1 n2 n3 ;;
  "show job") echo "JobId=7 ExcNodeList=(null) Nodes=4" ;;
  update*) exit UPDATE ;;
esac
"""


@pytest.mark.parametrize(
    ("update", "sentence"),
    [
        (0, "the nodes n1,n3 are excluded: their check failed"),
        (1, "the check of n1,n3 failed, and Slurm did not exclude them: the next attempt may get them again"),
    ],
)
def test_nodes_with_errors_but_a_neighbours_are_excluded(tmp_path: Path, update: int, sentence: str) -> None:
    job = jobs.job("slurm", "efa", "torchrun", work=Work(restarts=2))
    script = jobs.files(job)["job.sbatch"]
    functions = script[script.index("requeue() {") : script.index("trap 'requeue")]
    programs = {"scontrol": SCONTROL.replace("UPDATE", str(update)), "sbatch": "#!/bin/sh\n", "sleep": "#!/bin/sh\n"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.sh").write_text(f"set -euo pipefail\n{functions}\ncat {tmp_path}/lines\nrequeue failed\n")
    (tmp_path / "lines").write_text(LOG)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[0-3]",
        "SLURM_JOB_NUM_NODES": "4",
    }
    with (tmp_path / "log").open("wb") as log:
        completed = subprocess.run(
            ["bash", tmp_path / "job.sh"], env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    assert completed.returncode == 1
    assert (tmp_path / "log").read_text().splitlines()[4:] == ["attempt 1: failed; the job is queued again", sentence]


SRUN = """#!/bin/sh
for word; do case $word in --ntasks=*|--mpi=*) echo "srun $word" ;; esac; done
case "$*" in *--ntasks=*) exit CODE ;; esac
"""


@pytest.mark.parametrize(
    ("code", "restarts", "lines"),
    [
        (0, 0, ["srun --ntasks=2", "srun --mpi=pmix"]),
        (1, 0, ["srun --ntasks=2"]),
        (0, 1, ["srun --ntasks=2", "srun --mpi=pmix"]),
        (1, 1, ["srun --ntasks=2", "attempt 1: the check of the nodes failed; the job is queued again", "requeue 7"]),
    ],
)
def test_the_nodes_of_ranks_that_srun_starts_are_checked(
    tmp_path: Path, code: int, restarts: int, lines: list[str]
) -> None:
    script = jobs.files(jobs.job("slurm", "efa", "mpirun", work=Work(restarts=restarts)))["job.sbatch"]
    scontrol = '#!/bin/sh\ncase $1 in show) echo n0 ;; *) echo "$@" ;; esac\n'
    programs = {"srun": SRUN.replace("CODE", str(code)), "scontrol": scontrol, "sleep": "#!/bin/sh\n"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.sbatch").write_text(script)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        **{"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "j", "SLURM_JOB_NODELIST": "n0", "SLURM_JOB_NUM_NODES": "2"},
    }
    with (tmp_path / "log").open("wb") as log:
        completed = subprocess.run(
            ["bash", "job.sbatch"], cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    assert completed.returncode == code
    assert (tmp_path / "log").read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("docker.io/team/image", "registry-1.docker.io/team/image"),
        ("docker.io/image", "registry-1.docker.io/library/image"),
        ("team/image:1.0", "registry-1.docker.io/team/image:1.0"),
        ("localhost:5000/team/image", "localhost:5000/team/image"),
    ],
)
def test_an_image_of_docker_hub_has_the_host_that_answers(image: str, name: str) -> None:
    """enroot up to 4.1.2 asks the host docker.io itself, which is no registry."""
    digest = "@sha256:" + "5e" * 32
    script = jobs.files(jobs.job("slurm", "efa", "torchrun", image=image + digest))["job.sbatch"]
    assert f"--container-image=docker://{name}{digest}\n" in script
