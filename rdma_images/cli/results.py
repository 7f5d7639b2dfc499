"""The tasks on the logs and results of jobs: verdict and job.compare."""

from collections.abc import Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from invoke.context import Context
from invoke.exceptions import Exit

from rdma_images.cli.output import show
from rdma_images.cli.verb import Json, verb

if TYPE_CHECKING:
    from rdma_images.nccl_logs.verdict import Verdict


@verb(
    "verdict worker-0.log",
    "verdict build/jobs/efa-nccl-tests-p5-48xlarge-2/runs/20261122T060000Z",
    "verdict worker-0.log worker-1.log --instance p5.48xlarge --nodes 2 --html result.html",
)
def verdict(
    _: Context,
    logs: Annotated[Sequence[str], "A log or several, a folder of logs, the folder of a run, or - for standard input."],
    tcp: Annotated[str, "The logs of the same job over TCP: a folder, or one file."] = "",
    job: Annotated[str, "The job.json of the job; without it the one beside the run."] = "",
    instance: Annotated[str, "Without job.json: the instance type that it ran on."] = "",
    nodes: Annotated[int, "Without job.json: how many nodes it should have run on."] = 0,
    html: Annotated[str, "Write a page with the chart into this file."] = "",
    json: Json = False,
) -> None:
    """Say which network a job's NCCL used, from its logs.

    NCCL must have run with NCCL_DEBUG=INFO. Of several logs, a folder, or a log with an option about its job, it also
    shows the adapters of each node, and the bus bandwidth that nccl-tests measured. Exit code 0: the network is good;
    1: it is not; 3: the logs do not show it.
    """
    paths = [Path("/dev/stdin" if name == "-" else name) for name in logs]
    is_about_job = bool(tcp or job or instance or nodes or html)
    from rdma_images.core import atomic
    from rdma_images.jobs.results import from_logs, result_page, result_table, run_folder, run_results

    if len(paths) == 1 and not paths[0].is_dir() and paths[0].name != run_folder.RESULT.name and not is_about_job:
        _show_verdict(run_results.judge_log(paths[0]), json)
        return
    result = from_logs.read_logs(paths, Path(tcp) if tcp else None, Path(job) if job else None, instance, nodes or None)
    if html:
        atomic.write(Path(html), result_page.result_html(result))
    show(run_folder.RESULT.text(result).rstrip() if json else result_table.result_table(result))
    if result.exit_code:
        raise Exit(code=result.exit_code)


def _show_verdict(log_verdict: "Verdict", json: bool) -> None:
    """Print the verdict on one log. Raises Exit with its exit code unless the network is good."""
    show(dumps(asdict(log_verdict), indent=2) if json else f"{log_verdict.network}: {log_verdict.sentence}")
    if log_verdict.exit_code:
        raise Exit(code=log_verdict.exit_code)


@verb(
    "job.compare build/jobs/before/runs/20261121T060000Z build/jobs/after/runs/20261122T060000Z",
    name="compare",
)
def job_compare(
    _: Context,
    first: Annotated[str, "A result.json, or the folder of a run or of logs."],
    second: Annotated[str, "The result to compare it with."],
    json: Json = False,
) -> None:
    """Compare two results, size by size.

    Shows the bus bandwidth of both, the ratio, and what else differs: image, instance type, nodes, versions.
    """
    from rdma_images.jobs.results import compare, from_logs, result_table

    comparison = compare.compare(from_logs.read_result(Path(first)), from_logs.read_result(Path(second)))
    show(dumps(asdict(comparison), indent=2) if json else result_table.comparison_table(comparison))
