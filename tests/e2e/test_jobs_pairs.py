"""Finding slow nodes as in docs/reference/results.md, on a real Slurm of eight nodes."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from rdma_images.core.paths import PROJECT
from rdma_images.jobs.write import create
from tests.e2e import slurm_parts, test_job_run_slurm, test_jobs_slurm, unpacked
from tests.support import job_parts as jobs
from tests.support import nccl_tests_text as text

pytestmark = [pytest.mark.e2e, pytest.mark.exhaustive, unpacked.needs]

NODES = tuple(f"n{n}" for n in range(1, 9))
SLOW = "n3"
# Of a rank: waits until the four jobs of the first round run, meets the other rank, and one of both prints what was
# planted for their pair. The name of a pair's file has the digits of its nodes.
COMMAND = """
logs=${NCCL_DEBUG_FILE%/*} left=300
await() { until [ "$(ls -d $1 | wc -l)" -ge "$2" ]; do left=$((left - 1)); [ $left != 0 ] || exit 1; sleep 0.1; done; }
await "${logs%/*}/measured-*[0-9]" 4
touch "$logs/rank.$$"
await "$logs/rank.*" 2
! mkdir "$logs/first" 2> /dev/null || cat "PLANTED/$(echo "$SLURM_JOB_NODELIST" | tr -dc 0-9)"
"""


@pytest.fixture(scope="module", name="slurm")
def _slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with slurm_parts.cluster(tmp_path_factory.mktemp("slurm"), len(NODES)) as programs:
        yield programs


def lines() -> tuple[str, str]:
    """Return the folder of the job, and the lines, as the document has them."""
    (match,) = re.findall(
        r"```sh\n(job=(\S+)\n.+?)```", (PROJECT / "docs" / "reference" / "results.md").read_text(), re.DOTALL
    )
    return match[1], match[0]


def plant(folder: Path) -> None:
    """Write nccl-tests' output for each pair: 440 GB/s with noise, half with the slow node."""
    folder.mkdir()
    chance = random.Random(1)
    for pair in combinations(NODES, 2):
        busbw = 440 * chance.gauss(1, 0.03) * (0.5 if SLOW in pair else 1)
        rows = ((1 << 20, 492.95, 2.13, 2.13, 0), (1 << 34, 2**34 / busbw / 1000 * 1.875, busbw / 1.875, busbw, 0))
        (folder / "".join(pair).replace("n", "")).write_text(text.from_2_13(rows))


def write_job(tmp_path: Path, folder: Path) -> None:
    """Provide a job of two nodes; its container sees `tmp_path`."""
    request = jobs.job_request(
        *("slurm", "efa", "torchrun"),
        parameters={"runtime": "oci", "bundle": str(tmp_path / "bundle")},
        name="measured",
        command=("sh", "-c", COMMAND.replace("PLANTED", str(tmp_path / "planted"))),
    )
    create.write_job(request, jobs.load_project(), str(folder))
    (tmp_path / "bundle").mkdir()
    test_jobs_slurm.bundle(tmp_path / "bundle", tmp_path)
    (tmp_path / "bundle" / "rootfs" / "opt" / "torchrun").write_text(test_job_run_slurm.TORCHRUN)


def test_the_slow_node_is_found_in_two_rounds(tmp_path: Path, slurm: Path) -> None:
    folder, typed = lines()
    plant(tmp_path / "planted")
    write_job(tmp_path, tmp_path / folder)
    (tmp_path / "hostfile").write_text("\n".join(NODES))
    command = tmp_path / "bin" / "invoke"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m invoke --search-root={PROJECT} "$@"\n')
    command.chmod(0o755)
    environ = {**os.environ, "PATH": f"{slurm}:{command.parent}:{os.environ['PATH']}"}

    def run() -> subprocess.CompletedProcess[str]:
        shell = ["timeout", "120", "bash", "-c", typed]  # ends what bash left in the background, too
        return subprocess.run(shell, cwd=tmp_path, env=environ, capture_output=True, text=True)

    first = run()
    assert first.stdout.count("Submitted batch job") == 4, first
    assert "2 suspects, 1 more round at least" in first.stdout, first
    logs = {log.name: log.read_text() for log in (tmp_path / "pairs").iterdir()}
    assert all(log.count("Avg bus bandwidth") == 1 for log in logs.values()), logs
    second = run()
    assert second.stdout.count("Submitted batch job") == 2, second
    assert second.stdout.splitlines()[2] == f"slow: {SLOW}", second
    assert "# round" not in second.stdout
    assert second.returncode == 1
    assert len(list((tmp_path / "pairs").iterdir())) == 6
