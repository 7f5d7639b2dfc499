"""The scripts of an MPIJob's pods with a real Open MPI and OpenSSH on three "machines"."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.jobs.write.job import Job
from rdma_images.jobs.write.work import Work
from tests.e2e import unpacked
from tests.support import job_parts as jobs
from tests.support.kubelet import expand

pytestmark = [pytest.mark.e2e, unpacked.needs]

PACKAGES = (
    *("openmpi-bin", "openmpi-common", "libopenmpi3", "libevent-core-2.1-7", "libevent-pthreads-2.1-7", "libhwloc15"),
    *("libpmix2", "libmunge2", "openssh-server", "openssh-client", "libwrap0"),
)
RANK = 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname) network $NCCL_NET uid $(id -u)"; '
LOG = 'echo "a log of NCCL" > "$(echo "$NCCL_DEBUG_FILE" | sed "s/%h/$(hostname)/; s/%p/$$/")"'


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
def test_the_ranks_have_the_images_variables_and_their_logs_come_back(
    folder: Path, launcher: str, tcp: bool, network: str, user: str
) -> None:
    """sshd passes no variable on: mpirun must name those that the image sets."""
    job = jobs.job(launcher, "erdma", "mpirun", gpus=2, tcp=tcp, command=("/bin/sh", "-c", RANK + LOG))
    if user:
        job = replace(job, user=user, home=f"{folder}/home")
    done = run(folder, launcher, job)
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert (
            f"[1,{rank}]<stdout>:rank {rank} of 4 on worker-{2 + rank // 2} network {network} uid {1000 if user else 0}"
            in done.stdout
        )
    assert done.stdout.count("a log of NCCL") >= 4
    # Each node is checked under the name that its pod has, and both meet at the first one.
    checked = sorted(re.findall(r"<stdout>:rdma-images-node-check (\S+) done in", done.stdout))
    assert checked == ([] if tcp else ["node-2", "node-3"])
    assert " error neighbour" not in done.stdout


def test_a_node_with_an_error_ends_the_job_before_its_ranks(folder: Path) -> None:
    work = Work(env={"NCCL_SOCKET_IFNAME": "=absent"})
    job = jobs.job("mpijob", "erdma", "mpirun", gpus=2, command=("/bin/sh", "-c", RANK), work=work)
    done = run(folder, "mpijob", job)
    assert done.returncode == 1
    assert re.search(r"node-check node-\d error interface: NCCL_SOCKET_IFNAME==absent fits no interface", done.stdout)
    assert "rank 0 of 4" not in done.stdout


def run(folder: Path, launcher: str, job: Job) -> subprocess.CompletedProcess[str]:
    """Run the scripts of a launcher and its two workers, each in its own network namespace."""
    roles = ("launcher", "worker") if launcher == "mpijob" else ("worker", "launcher")
    groups = {""}
    for role, pod in zip(roles, jobs.pods(job), strict=True):
        groups.add(",".join(map(str, pod["spec"].get("securityContext", {}).get("supplementalGroups", ()))))
        script = expand(pod["spec"]["containers"][0]["command"][2], {})
        (folder / f"{role}.sh").write_text(script.replace("/tmp/nccl", str(folder / "nccl")))
    variables = {**job.variables, "NCCL_DEBUG_FILE": f"{folder}/nccl/%h.%p.log"}
    (folder / "environment.sh").write_text("".join(f"export {name}='{value}'\n" for name, value in variables.items()))
    start = Path(__file__).parent / "mpi.sh"
    command = [
        *("unshare", "--mount", "bash", start, unpacked.tree("mpi", PACKAGES), folder),
        *(job.home, "1000" if job.user else "0", str(job.ssh_port)),
        *("trainer" if launcher == "trainjob" else "mpi-operator", max(groups)),
    ]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired as error:
        logs = "".join(path.read_text() for path in sorted(folder.glob("worker-*.log")))
        pytest.fail(f"the job hangs: {error.stdout!r} {error.stderr!r}\n{logs}")
