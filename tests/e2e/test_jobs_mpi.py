"""The scripts of an MPIJob's pods with a real Open MPI and OpenSSH on three "machines"."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.jobs.write.job import Job
from rdma_images.jobs.write.job_settings import JobSettings
from tests.e2e import unpacked
from tests.support import job_parts as jobs
from tests.support.kubelet import expand
from tests.support.preflight_parts import preflight

pytestmark = [pytest.mark.e2e, pytest.mark.part("ssh"), unpacked.needs]

RANK = 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname) network $NCCL_NET uid $(id -u)"; '
# In the place of the image's preflight: these "machines" have no adapters.
PREFLIGHT = """#!/bin/sh
echo "preflight of $RDMA_IMAGES_NODE first $MASTER_ADDR"
[ -z "$BAD" ] || exit 96
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Provide a folder that every user reads: pytest's own are for root alone."""
    with tempfile.TemporaryDirectory(prefix="rdma-images-mpi-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.mark.parametrize(
    ("launcher", "tcp", "network", "user"),
    [
        ("mpijob", False, "IB", ""),
        ("mpijob", True, "Socket", ""),
        ("mpijob", False, "IB", "ranks"),
        ("trainjob", False, "IB", ""),
        ("trainjob", False, "IB", "ranks"),
    ],
)
def test_the_ranks_have_the_images_variables_after_the_preflight_of_their_node(
    folder: Path, launcher: str, tcp: bool, network: str, user: str
) -> None:
    """sshd passes no variable on: mpirun must name those that the image sets."""
    job = jobs.job(launcher, "erdma", "mpirun", gpus=2, tcp=tcp, command=("/bin/sh", "-c", RANK))
    if user:
        job = replace(job, user=user, home=f"{folder}/home")
    done = run(folder, launcher, job)
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert (
            f"[1,{rank}]<stdout>:rank {rank} of 4 on worker-{2 + rank // 2} network {network} uid {1000 if user else 0}"
            in done.stdout
        )
    # Each rank starts under the name that its node's pod has, and is told the first one.
    checked = sorted(re.findall(r"<stdout>:preflight of (\S+) first (\S+)", done.stdout))
    assert checked == ([] if tcp else [("node-2", "10.77.0.2")] * 2 + [("node-3", "10.77.0.2")] * 2)


def test_a_node_with_an_error_ends_the_job_before_its_ranks(folder: Path) -> None:
    changes = {"command": ("/bin/sh", "-c", RANK), "settings": JobSettings(env={"BAD": "1"})}
    job = jobs.job("mpijob", "erdma", "mpirun", gpus=2, **changes)
    done = run(folder, "mpijob", job)
    assert done.returncode == 96
    assert "rank 0 of 4" not in done.stdout


def run(folder: Path, launcher: str, job: Job) -> subprocess.CompletedProcess[str]:
    """Run the scripts of a launcher and its two workers, each in its own network namespace."""
    roles = ("launcher", "worker") if launcher == "mpijob" else ("worker", "launcher")
    groups = {""}
    for role, pod in zip(roles, jobs.pods(job), strict=True):
        groups.add(",".join(map(str, pod["spec"].get("securityContext", {}).get("supplementalGroups", ()))))
        script = expand(pod["spec"]["containers"][0]["command"][2], {})
        # The two workers have one /tmp here, and each its own in a cluster.
        script = script.replace("/tmp/ssh_host_key", f"{folder}/ssh_host_key-$(hostname)")
        (folder / f"{role}.sh").write_text(script.replace("rdma-preflight", str(folder / "rdma-preflight")))
    (folder / "rdma-preflight").write_text(PREFLIGHT)
    (folder / "rdma-preflight").chmod(0o755)
    exports = [f"export {name}='{value}'\n" for name, value in job.variables.items()]
    (folder / "environment.sh").write_text("".join(exports))
    (folder / "usr/local/bin").mkdir(parents=True)
    (folder / "usr/local/bin/rdma-preflight").symlink_to(preflight())
    start = Path(__file__).parent / "mpi.sh"
    command = [
        *("unshare", "--mount", "bash", start, unpacked.tree("mpi", unpacked.MPI_PACKAGES), folder),
        *(job.home, "1000" if job.user else "0", str(job.ssh_port)),
        *("trainer" if launcher == "trainjob" else "mpi-operator", max(groups)),
    ]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired as error:
        logs = "".join(path.read_text() for path in sorted(folder.glob("worker-*.log")))
        pytest.fail(f"the job hangs: {error.stdout!r} {error.stderr!r}\n{logs}")
