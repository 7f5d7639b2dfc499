"""The tasks on the results of jobs."""

import sys
from json import dumps
from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit

from rdma_images.cli.output import show
from rdma_images.cli.parsing import after_dashes
from rdma_images.cli.verb import JSON, verb
from rdma_images.core.durations import parse_duration
from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import progress


@verb(
    "job.result build/jobs/efa-nccl-tests-p5-48xlarge-2/runs/20261122T060000Z",
    "job.result worker-0.log --instance p5.48xlarge --nodes 2 -- worker-1.log out.json",
    "job.result logs/ --tcp logs-over-tcp/ --html result.html",
    name="result",
    positional=["path"],
    help={
        "path": "The folder of a run, a folder of logs, a log, or nccl-tests' JSON; more logs after --.",
        "tcp": "The logs of the same job over TCP: a folder, or one file.",
        "job": "The job.json of the job; without it the one beside the run.",
        "instance": "Without job.json: the instance type that it ran on.",
        "nodes": "Without job.json: how many nodes it should have run on.",
        "html": "Write a page with the chart into this file.",
        **JSON,
    },
)
def job_result(
    _: Context,
    path: str,
    tcp: str = "",
    job: str = "",
    instance: str = "",
    nodes: int = 0,
    html: str = "",
    json: bool = False,
) -> None:
    """Say which fabric a job used, from the logs of its ranks.

    Also on how many adapters of each node, and at what bus bandwidth. Reads NCCL's lines (NCCL_DEBUG=INFO) and
    nccl-tests' rows, text or JSON, with any launcher's prefix. Exit code 0: the job ran as it should; 1: it did not;
    3: the logs do not say.
    """
    from rdma_images.facts import Facts
    from rdma_images.jobs.results import from_logs, result_table, run_folder, troubleshooting

    paths = [Path(argument) for argument in (path, *after_dashes(sys.argv))]
    result = from_logs.read_logs(paths, Path(tcp) if tcp else None, Path(job) if job else None, instance, nodes or None)
    if html:
        from rdma_images.core import atomic
        from rdma_images.jobs.results import result_page

        atomic.write(Path(html), result_page.result_html(result))
    show(run_folder.RESULT.text(result).rstrip() if json else result_table.result_table(result))
    if explanations := troubleshooting.fitting_result(result, (), Facts().troubleshooting):
        show(explanations, file=sys.stderr)
    if result.exit_code:
        raise Exit(code=result.exit_code)


@verb(
    "job.watch -- kubectl logs -f -l app=training --prefix --max-log-requests=64",
    "job.watch --log train.log --timeout 5m",
    name="watch",
    help={
        "log": "A log that grows, or - for standard input; or a command after --, whose output is passed on.",
        "timeout": "How long to watch: 90s, 30m, 2h or 1d.",
        **JSON,
    },
)
def job_watch(_: Context, log: str = "", timeout: str = "24h", json: bool = False) -> None:
    """Judge any job's network while it runs.

    Says the verdict as soon as NCCL's lines (NCCL_DEBUG=INFO) show it, and again when it changes. Ends with the
    command, the pipe or the time, or 10 seconds after a line that no job survives; a command is then ended. The
    exit code is that of `verdict`; 1 where the command failed.
    """
    from dataclasses import asdict

    from rdma_images.jobs.run import watch

    command = after_dashes(sys.argv)
    if bool(log) == bool(command):
        raise RefusedError("job.watch takes a log or a command\nuse --log FILE (- for standard input), or -- COMMAND")
    limit = parse_duration(timeout, "--timeout")
    if command:
        last_verdict, code = watch.watch_command(command, limit, progress)
    else:
        last_verdict, code = watch.watch_log(Path("/dev/stdin" if log == "-" else log), limit, progress), 0
    show(dumps(asdict(last_verdict), indent=2) if json else f"{last_verdict.network}: {last_verdict.sentence}")
    if code:
        raise Exit(f"{command[0]} ended with exit code {code}", code=1)
    if last_verdict.exit_code:
        raise Exit(code=last_verdict.exit_code)


@verb("job.library", name="library")
def job_library(_: Context) -> None:
    """Print rdma_check.py: three lines of a training import it.

    The training then ends within 30 seconds where NCCL uses TCP between nodes, with the reason. It is one file for
    Python 3.8 and later, and needs nothing of this tool.
    """
    from rdma_images.jobs.node import rdma_check

    sys.stdout.write(Path(rdma_check.__file__).read_text(encoding="utf-8"))


@verb(
    "job.compare build/jobs/before/runs/20261121T060000Z build/jobs/after/runs/20261122T060000Z",
    "job.compare before.json after.json --html curves.html",
    "job.compare ghcr.io/team/image@sha256:… result.json --key cosign.pub",
    name="compare",
    positional=["first", "second"],
    help={
        "first": "A result.json, the folder of a run or of logs, or host/repository@sha256:… with results attached.",
        "second": "The result to compare it with.",
        "key": "The public key that must have signed what is attached.",
        "html": "Write a page with both curves into this file.",
        **JSON,
    },
)
def job_compare(_: Context, first: str, second: str, key: str = "", html: str = "", json: bool = False) -> None:
    """Compare two results, size by size.

    Shows the bus bandwidth of both, the ratio, and what else differs: image, instance type, nodes, versions. If an
    image has results of several jobs, host/repository@sha256:…#NAME names one of them.
    """
    from dataclasses import asdict

    from rdma_images.jobs.results import compare, evidence, from_logs, result_table
    from rdma_images.publish import keys

    trust = keys.parse_trust(key, "", "")
    results = [
        evidence.fetch_by_reference(folder, trust)
        if evidence.is_reference(folder)
        else from_logs.read_result(Path(folder))
        for folder in (first, second)
    ]
    comparison = compare.compare(*results)
    if html:
        from rdma_images.core import atomic

        atomic.write(Path(html), compare.html(comparison, *results))
    show(dumps(asdict(comparison), indent=2) if json else result_table.comparison_table(comparison))


tasks = (job_result, job_watch, job_library, job_compare)
