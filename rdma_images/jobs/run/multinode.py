"""The tier "multinode": the nodes of a job measured in its own pods or ranks, and the job itself."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rdma_images import report
from rdma_images.core import atomic
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.pipeline import Check, Outcome
from rdma_images.core.progress import Progress
from rdma_images.inspection.inspection import Case, Expected
from rdma_images.inspection.measurements import Measured
from rdma_images.inspection.report import Report
from rdma_images.jobs.results import from_logs, run_folder
from rdma_images.jobs.results.result import Result
from rdma_images.jobs.run import job_run
from rdma_images.jobs.write import create, folder
from rdma_images.jobs.write.job import Job
from rdma_images.nccl_logs import log_blocks
from rdma_images.report import junit
from rdma_images.selection.project import Project
from rdma_images.validate import elsewhere, folder_of, in_job, suite

PLACE = "measure"  # in the job's folder, the job that measures its nodes
SOURCE = "the job's own logs"


def validate(place: Path, project: Project, tiers: Sequence[str], options: job_run.Options, say: Progress) -> Report:
    """Measure the nodes of the job in `place` for `tiers`, device or gpu, then run it; the report is the image's.

    Raises what running a job raises, and RdmaImagesError where no node was measured.
    """
    started = time.monotonic()
    job = folder.load(place)
    nodes = _measured(job, place, project, tiers, options, say)
    here = job_run.run(place, project, options, say)
    result = from_logs.result_of_run(here)
    run_folder.write(result, here)
    expected = Expected(fabric=job.fabric, because="job.json says so", target=job.target)
    of_nodes = in_job.checks(job.image, nodes, expected, tiers)
    own = tuple(_own(job, nodes, result))
    name, first = next(iter(nodes.items()))
    subject = elsewhere.subject(job.image, name, first).model_copy(update={"digest": result.digest})
    answer = Report(
        ref=job.image,
        digest=result.digest,
        suite=suite.digest(),
        image_id=None,
        rehearsal=(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 3),
        checks=(*of_nodes, *own),
        facts=Case(subject=subject, expected=expected, measured=first),
    )
    out = folder_of(job.image, host=job.name)
    out.mkdir(parents=True, exist_ok=True)
    junit.write(out / "report.xml", answer.checks)
    report.write(answer, out)
    return answer


def _measured(
    job: Job, place: Path, project: Project, tiers: Sequence[str], options: job_run.Options, say: Progress
) -> dict[str, Measured]:
    """What each node of the job is, measured by a job of the same shape."""
    words = in_job.command(tiers)
    name = f"{job.name[:36].rstrip('-')}-measure"
    probing = replace(job, name=name, command=words if job.starter == "mpirun" else ("--no-python", *words))
    # File by file: what an earlier run could not remove is noted in this folder, too.
    for file, text in create.files(probing, project).items():
        atomic.write(place / PLACE / file, text)
    here = job_run.run(place / PLACE, project, options, say)
    lines = (line for path in run_folder.logs(here) for block in log_blocks.blocks(path) for line in block)
    nodes = in_job.read(lines, tiers)
    if not nodes:
        raise RdmaImagesError(f"no node of {job.name} was measured\nsee what its ranks printed: {here}")
    return nodes


def _own(job: Job, nodes: Mapping[str, Measured], result: Result) -> Iterator[Check]:
    """What no node can tell alone."""
    missing = [name for name, found in nodes.items() if found.lost]
    all_there = len(nodes) == job.nodes and not missing
    said = f"{len(nodes)} nodes" + (f", in part: {', '.join(missing)}" if missing else "")
    yield _check(
        "multinode.measured",
        "Every node of the job was measured",
        "passed" if all_there else "failed",
        (f"{job.nodes} nodes", said, "look at the logs of the ranks that did not answer"),
    )
    kinds = {name: _kind(found) for name, found in nodes.items()}
    alike = len(set(kinds.values())) == 1
    found = next(iter(kinds.values())) if alike else "; ".join(f"{name}: {kind}" for name, kind in kinds.items())
    yield _check(
        "multinode.alike",
        "The nodes have the same devices, driver and limits",
        ("passed" if alike else "failed") if any(kinds.values()) else "skipped",
        ("the same on every node", found, "replace or repair the node that differs"),
    )
    leg = result.leg("fabric")
    if leg:
        errors = [one for one in leg.problems if one.severity == "error"]
        outcome: Outcome = "skipped" if leg.good is None else "passed" if leg.good and not errors else "failed"
        fix = next((one.fix for one in errors if one.fix), "see docs/troubleshooting.md")
        said = "; ".join((leg.sentence, *(one.sentence for one in errors)))
        yield _check("multinode.network", "The job uses its fabric on every node", outcome, (job.fabric, said, fix))


def _kind(found: Measured) -> str:
    """What nodes of one job have in common."""
    if not found.devices:
        return ""
    one = found.devices
    memlock = "no limit" if one.memlock is None else f"{one.memlock} bytes"
    driver = one.nvidia_module or "none"
    return f"{one.instance or 'unknown type'}, {len(one.rdma)} RDMA devices, driver {driver}, locked memory {memlock}"


def _check(id: str, title: str, outcome: Outcome, texts: tuple[str, str, str]) -> Check:
    expected, found, fix = texts
    return Check(
        id=id,
        title=title,
        tier="multinode",
        severity="error",
        outcome=outcome,
        expected=expected,
        found=found if outcome != "skipped" else "",
        fix=fix if outcome == "failed" else "",
        reason=found if outcome == "skipped" else "",
        source=SOURCE,
    )
