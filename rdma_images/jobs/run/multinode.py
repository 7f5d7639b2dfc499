"""The tier "multinode": measure the nodes of a job in its own pods or ranks, then run the job itself."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rdma_images import report
from rdma_images.core import atomic
from rdma_images.core.check import Check, Outcome
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress
from rdma_images.inputs.project import Project
from rdma_images.inspection.inspection import Expected, Inspection
from rdma_images.inspection.measurements import Measured
from rdma_images.inspection.report import Report
from rdma_images.jobs.results import from_logs, log_files, run_folder
from rdma_images.jobs.results.result import Result
from rdma_images.jobs.run import job_run
from rdma_images.jobs.write import create, folder
from rdma_images.jobs.write.job import Job
from rdma_images.report import junit
from rdma_images.report.report_files import report_folder
from rdma_images.validate import in_job, measure_host, suite

MEASURE_FOLDER = "measure"  # in the job's folder, the job that measures its nodes
SOURCE = "the job's own logs"


def validate(
    job_folder: Path, project: Project, tiers: Sequence[str], options: job_run.JobRunOptions, progress: Progress
) -> Report:
    """Measure a job's nodes for `tiers`, run the job, and return the image's report.

    Raises what running a job raises, and RdmaImagesError where no node was measured.
    """
    start_time = time.monotonic()
    job = folder.load(job_folder)
    nodes = _measure_nodes(job, job_folder, project, tiers, options, progress)
    run_path = job_run.run_job(job_folder, project, options, progress)
    result = from_logs.read_run(run_path)
    run_folder.write(result, run_path)
    expected = Expected(fabric=job.fabric, because="job.json says so", target=job.target)
    node_checks = in_job.checks(job.image, nodes, expected, tiers)
    job_checks = tuple(_job_checks(job, nodes, result))
    name, first_measured = next(iter(nodes.items()))
    subject = measure_host.host_config(job.image, name, first_measured).model_copy(update={"digest": result.digest})
    job_report = Report(
        ref=job.image,
        digest=result.digest,
        suite=suite.digest(),
        image_id=None,
        rehearsal=(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - start_time, 3),
        checks=(*node_checks, *job_checks),
        inspection=Inspection(subject=subject, expected=expected, measured=first_measured),
    )
    out = report_folder(job.image, host=job.name)
    out.mkdir(parents=True, exist_ok=True)
    junit.write_checks(out / "report.xml", job_report.checks)
    report.write(job_report, out)
    return job_report


def _measure_nodes(
    job: Job,
    job_folder: Path,
    project: Project,
    tiers: Sequence[str],
    options: job_run.JobRunOptions,
    progress: Progress,
) -> dict[str, Measured]:
    """Return what each node of the job is, measured by a job of the same shape."""
    command = in_job.command(tiers)
    name = f"{job.name[:36].rstrip('-')}-measure"
    probing = replace(job, name=name, command=command if job.starter == "mpirun" else ("--no-python", *command))
    # File by file: this folder also notes what an earlier run could not remove.
    for file, text in create.render_job_files(probing, project).items():
        atomic.write(job_folder / MEASURE_FOLDER / file, text)
    run_path = job_run.run_job(job_folder / MEASURE_FOLDER, project, options, progress)
    lines = (
        line for path in run_folder.logs(run_path) for _, text in log_files.pieces(path) for line in text.splitlines()
    )
    nodes = in_job.parse_measurements(lines, tiers)
    if not nodes:
        raise RdmaImagesError(f"no node of {job.name} was measured\nsee what its ranks printed: {run_path}")
    return nodes


def _job_checks(job: Job, nodes: Mapping[str, Measured], result: Result) -> Iterator[Check]:
    """Yield the checks that no node can answer alone."""
    missing = [name for name, measured in nodes.items() if measured.lost]
    is_complete = len(nodes) == job.nodes and not missing
    listed = f"{len(nodes)} nodes" + (f", in part: {', '.join(missing)}" if missing else "")
    yield _check(
        "multinode.measured",
        "Every node of the job was measured",
        "passed" if is_complete else "failed",
        (f"{job.nodes} nodes", listed, "look at the logs of the ranks that did not answer"),
    )
    kinds = {name: _node_kind(measured) for name, measured in nodes.items()}
    are_alike = len(set(kinds.values())) == 1
    measured = next(iter(kinds.values())) if are_alike else "; ".join(f"{name}: {kind}" for name, kind in kinds.items())
    yield _check(
        "multinode.alike",
        "The nodes have the same devices, driver and limits",
        ("passed" if are_alike else "failed") if any(kinds.values()) else "skipped",
        ("the same on every node", measured, "replace or repair the node that differs"),
    )
    run = result.run("fabric")
    if run:
        errors = [problem for problem in run.problems if problem.severity == "error"]
        outcome: Outcome = "skipped" if run.good is None else "passed" if run.good and not errors else "failed"
        fix = next((problem.fix for problem in errors if problem.fix), "see what the logs of its ranks say")
        listed = "; ".join((run.sentence, *(problem.sentence for problem in errors)))
        yield _check("multinode.network", "The job uses its fabric on every node", outcome, (job.fabric, listed, fix))


def _node_kind(measured: Measured) -> str:
    """Return what nodes of one job have in common."""
    if not measured.devices:
        return ""
    devices = measured.devices
    memlock = "no limit" if devices.memlock is None else f"{devices.memlock} bytes"
    driver = devices.nvidia_module or "none"
    instance = devices.instance or "unknown type"
    return f"{instance}, {len(devices.rdma)} RDMA devices, driver {driver}, locked memory {memlock}"


def _check(id: str, title: str, outcome: Outcome, texts: tuple[str, str, str]) -> Check:
    expected, measured, fix = texts
    return Check(
        id=id,
        title=title,
        tier="multinode",
        severity="error",
        outcome=outcome,
        expected=expected,
        actual=measured if outcome != "skipped" else "",
        fix=fix if outcome == "failed" else "",
        reason=measured if outcome == "skipped" else "",
        source=SOURCE,
    )
