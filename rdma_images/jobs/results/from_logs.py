"""Make the result of a job from the logs of its ranks, which a run kept or somebody collected in a folder."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rdma_images.core import exit_codes, files
from rdma_images.core.errors import RefusedError
from rdma_images.core.sizes import format_count, format_size
from rdma_images.jobs.results import expectations, run_files, run_results, tables
from rdma_images.jobs.results.expectations import Expectations
from rdma_images.jobs.results.result import Result, RunResult
from rdma_images.jobs.write import job_folder
from rdma_images.jobs.write.job import Job


def job_result(
    logs: Sequence[Path],
    job: Job | None,
    tcp: Sequence[Path] = (),
    base: Path | None = None,
    expected: Expectations | None = None,
) -> Result:
    """Return the result of the run that left `logs`, and of the one over TCP.

    Args:
        job: The run's job.json; None for a job that was written elsewhere.
        tcp: The logs of the same run over TCP.
        base: The folder that lines are named relative to.
        expected: What to expect; without it what the job says.

    Raises:
        RdmaImagesError: A log cannot be read.
    """
    expected = expected or expectations.job_expectations(job)
    runs = (
        run_results.run_result("fabric", logs, expected, base),
        *((run_results.run_result("tcp", tcp, expected, base),) if tcp else ()),
    )
    node = expected.instance_type
    line_rate = node.bandwidth / 8 if node else None
    states = {run.good for run in runs}
    return Result(
        job=job.name if job else "",
        digest=job.digest if job else "",
        instance=expected.instance,
        nodes=expected.nodes,
        fabric=expected.fabric,
        runs=runs,
        line_rate=line_rate,
        sentence=_sentence(runs, line_rate),
        exit_code=exit_codes.FAILED if False in states else exit_codes.UNKNOWN if None in states else exit_codes.OK,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _sentence(runs: Sequence[RunResult], line_rate: float | None) -> str:
    """Return the result in a sentence: what is wrong, else the fabric and the speed."""
    problems = [problem for run in runs for problem in run.problems]
    if problems:
        worst = min(problems, key=lambda problem: problem.severity != "error")
        more = f" ({len(problems) - 1} more below)" if len(problems) > 1 else ""
        return f"{worst.sentence}{more}"
    return "; ".join(_good_parts(runs, line_rate))


def _good_parts(runs: Sequence[RunResult], line_rate: float | None) -> Iterator[str]:
    run, row = runs[0], runs[0].largest
    name = "one node, no network" if run.network == "one node" else tables.TITLES.get(run.network, run.network)
    counts = {int(node.adapters.value) for node in run.nodes if node.adapters}
    if run.network == "one node" or not run.nodes:
        yield name
    else:
        adapters = f"{format_count(min(counts), 'adapter')} of each of " if counts else ""
        yield f"{name} on {adapters}{len(run.nodes)} nodes"
    gpudirect = {node.gpudirect.value for node in run.nodes if node.gpudirect}
    if gpudirect:
        phrases = {frozenset({"yes"}): "GPUDirect RDMA", frozenset({"no"}): "no GPUDirect RDMA"}
        yield phrases.get(frozenset(gpudirect), "GPUDirect RDMA on some channels")
    if row and row.busbw is not None:
        share = f", {row.busbw / line_rate:.0%} of the line rate" if line_rate and row.busbw else ""
        yield f"{row.collective or 'collective'} of {format_size(row.size)} at {row.busbw:.4g} GB/s{share}"
    compared = [line for line in tables.compare_sizes(*runs) if line.ratio]
    if compared:
        size = "" if row and compared[-1].row.size == row.size else f" at {format_size(compared[-1].row.size)}"
        yield f"{compared[-1].ratio:.1f} times TCP{size}"


def read_job_result(
    paths: Sequence[Path],
    tcp: Path | None = None,
    job: Path | None = None,
    instance: str = "",
    nodes: int | None = None,
) -> Result:
    """Return the result of logs, of a run's folder, or of an existing result.json.

    Args:
        tcp: The logs of the same job over TCP.
        instance: The instance type of a job without job.json.
        nodes: The number of nodes of a job without job.json.

    Raises:
        RdmaImagesError: Something cannot be read.
        RefusedError: The arguments contradict each other.
    """
    first_path = paths[0]
    if len(paths) == 1 and first_path.name == run_files.RESULT.name:
        if tcp or job or instance or nodes:
            raise RefusedError(f"{first_path} has the result of its job\nleave out --tcp, --job, --instance, --nodes")
        return run_files.load(first_path)
    spec = job_folder.load(job) if job else run_files.read_job(first_path) if first_path.is_dir() else None
    if spec and (instance or nodes):
        raise RefusedError(f"job.json of {spec.name} has its instance type and nodes\nleave out --instance and --nodes")
    fabric_logs = [log for path in paths for log in find_logs(path)]
    tcp_logs = list(find_logs(tcp) if tcp else run_files.logs(first_path, "tcp") if first_path.is_dir() else ())
    fabric_logs, tcp_logs = [log.absolute() for log in fabric_logs], [log.absolute() for log in tcp_logs]
    folders = [first_path.absolute()] if first_path.is_dir() else [log.parent for log in fabric_logs]
    base = Path(os.path.commonpath([*folders, *(log.parent for log in tcp_logs)]))
    return job_result(fabric_logs, spec, tcp_logs, base, expectations.job_expectations(spec, instance, nodes))


def read_result(path: Path) -> Result:
    """Return the result at `path`: a result.json, a run's folder, or logs."""
    has_result = path.suffix == ".json" or (path / run_files.RESULT.name).is_file()
    return run_files.load(path) if has_result else read_job_result([path])


def find_logs(path: Path) -> tuple[Path, ...]:
    """Return the logs at `path`, a log or a folder with some. Raises RefusedError for none."""
    if not path.is_dir():
        return (path,)
    if (path / run_files.LOGS).is_dir():
        log_files = run_files.logs(path)
    else:
        no_logs = {run_files.RESULT.name, run_files.PAGE, *job_folder.written_files(path)}
        entries = (entry for entry in files.list_folder(path) if entry.name not in no_logs)
        log_files = tuple(filter(Path.is_file, entries))
    if not log_files:
        raise RefusedError(f"{path}: no logs in this folder\ngive the folder of a run, or its logs")
    return log_files
