"""The nodes of a job, measured by what their ranks run and read back from the job's logs."""

import os
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.core.check import Check
from rdma_images.core.errors import RdmaImagesError
from rdma_images.inspection.inspection import Expected
from rdma_images.jobs.run import job_run, multinode
from rdma_images.validate import in_job, suite
from tests.support import job_parts as jobs

TIERS = ("device",)


@pytest.fixture(name="node_lines", scope="module")
def _node_lines() -> list[str]:
    """Return what the ranks of this machine's only node print: rank 0 measures, the others say nothing."""
    ranks = [{**os.environ, "LOCAL_RANK": rank} for rank in ("0", "1")]
    words = in_job.command(TIERS)
    captured = [subprocess.run(words, env=entry, capture_output=True, text=True, check=True).stdout for entry in ranks]
    assert captured[1] == ""
    return captured[0].splitlines()


def test_what_a_node_measures_is_read_back_from_any_log(node_lines: list[str]) -> None:
    """Two nodes' lines, one of them with mpirun's prefix, between NCCL's."""
    first = [f"[1,0]<stdout>:{line}" for line in node_lines]
    second = [line.replace("rdma-images-node ", "rdma-images-node other-", 1) for line in node_lines]
    mixed = [*first, *second, *["n1:1:1 [0] NCCL INFO Using network Libfabric"] * 20]
    random.Random(1).shuffle(mixed)
    inspection = in_job.parse_measurements(mixed, TIERS)
    assert len(inspection) == 2
    first_node, second_node = inspection.values()
    assert first_node == second_node
    assert first_node.devices
    assert first_node.system
    assert first_node.lost == ()


def test_two_nodes_of_one_name_are_not_mixed(node_lines: list[str]) -> None:
    """Two ranks on one machine, or containers that are all called localhost: each is whole, and one counts."""
    again = subprocess.run(in_job.command(TIERS), capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(node_lines) > 1
    mixed = [line for pair in zip(node_lines, again, strict=False) for line in pair]
    for lines in (mixed, [*mixed, *node_lines[1:]], [node_lines[0], *again]):
        (inspection,) = in_job.parse_measurements(lines, TIERS).values()
        assert inspection.lost == ()
        assert inspection.devices


def test_what_came_in_part_is_lost(node_lines: list[str]) -> None:
    (inspection,) = in_job.parse_measurements(node_lines[1:], TIERS).values()
    assert "not whole in the job's logs" in inspection.missing["devices"]
    assert in_job.parse_measurements(["rdma-images-node x 0 1/1 AAAA", "rdma-images-node x 0 1/1"], TIERS)["x"].lost
    assert in_job.parse_measurements(["nothing of the kind"], TIERS) == {}


def test_a_check_of_all_nodes_is_the_worst_and_says_where(
    node_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (inspection,) = in_job.parse_measurements(node_lines, TIERS).values()
    expected = Expected(fabric="efa", because="the test")
    real = in_job.checks("image", {"n1": inspection, "n2": inspection}, expected, TIERS)
    assert {check.tier for check in real} == {"device"}
    assert "measured.complete" in {check.id for check in real}

    def ran(*_: object) -> tuple[Check, ...]:
        bad = next(nodes)
        return (
            Check("device.x", "x", "device", "error", "failed" if bad else "passed", actual="low" if bad else "ok"),
        )

    nodes = iter([False, True, False])
    monkeypatch.setattr(suite, "run", ran)
    (check,) = in_job.checks("image", dict.fromkeys(("n1", "n2", "n3"), inspection), expected, TIERS)
    assert (check.outcome, check.actual) == ("failed", "1 of 3 nodes: low")


@pytest.mark.parametrize(("launcher", "fabric", "starter"), list(jobs.combinations()))
def test_every_launcher_can_measure_its_nodes(launcher: str, fabric: str, starter: str) -> None:
    words = in_job.command(("device", "gpu"))
    job = jobs.job(launcher, fabric, starter)
    measuring = replace(job, command=words if starter == "mpirun" else ("--no-python", *words))
    if launcher == "sagemaker":
        with pytest.raises(RdmaImagesError, match="arguments of up to 256 characters"):
            jobs.files(measuring)
    else:
        assert "exec(__import__" in "".join(jobs.files(measuring).values())


def test_a_folder_that_is_no_job_measures_nothing(tmp_path: Path) -> None:
    with pytest.raises(RdmaImagesError, match="is not the folder of a job"):
        multinode.validate(tmp_path, jobs.load_project(), TIERS, job_run.JobRunOptions(), print)
