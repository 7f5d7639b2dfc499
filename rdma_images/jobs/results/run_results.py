"""The result of one run of a job: its verdict, nodes, rows and problems."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from rdma_images.core.sizes import format_count, format_size
from rdma_images.jobs.results import expected_bandwidth, logs, nodes
from rdma_images.jobs.results.expectations import Expectations
from rdma_images.jobs.results.logs import RunLogs
from rdma_images.jobs.results.nccl_tests import SizesParser
from rdma_images.jobs.results.result import Measurement, NodeResult, Problem, RunName, RunResult, Timing
from rdma_images.nccl_logs import verdict
from rdma_images.nccl_logs.verdict import Verdict

GOOD_NETWORKS = {"efa": ("efa",), "erdma": ("eRDMA",), None: ("efa", "eRDMA", "InfiniBand")}
FIXES = {
    "efa": "see that each pod or container has its EFA devices, and NCCL_NET=Libfabric with FI_PROVIDER=efa",
    "erdma": "see that each pod or container has its eRDMA devices, and NCCL_NET=IB",
    None: "",
}
MPI_FIX = "each process measures alone: compile nccl-tests with MPI=1, and start the ranks by the MPI of the image"
DEBUG_FIX = "run the job with NCCL_DEBUG=INFO, and give the logs of all ranks"


def run_result(name: RunName, paths: Sequence[Path], expectations: Expectations, base: Path | None) -> RunResult:
    """Return what the logs at `paths` say of the run."""
    wordings = verdict.load_wordings()
    run_logs = logs.read_run_logs(paths, wordings, base)
    network_verdict = verdict.judge_summary(run_logs.nccl, wordings)
    job_nodes = nodes.nodes(run_logs.processes, expectations, wordings)
    rows = _measurements(run_logs.tables, expectations.collective)
    parts = (
        _check_network(name, network_verdict, expectations, run_logs),
        _check_coverage(name, job_nodes, expectations, run_logs, network_verdict.network == "refused"),
        _check_rows(run_logs.tables),
        _check_world_size(rows, expectations, run_logs),
    )
    problems = _merge_equal(chain(*parts, nodes.problems(job_nodes, expectations) if name == "fabric" else ()))
    severities = {problem.severity for problem in problems}
    return RunResult(
        name=name,
        network=network_verdict.network,
        good=False if "error" in severities else None if "unknown" in severities else True,
        sentence=network_verdict.sentence,
        channels=dict(network_verdict.channels),
        ranks=len(_logged_ranks(job_nodes)),
        ranks_expected=expectations.ranks or run_logs.processes.ranks or None,
        nodes=job_nodes,
        measurements=rows,
        problems=problems,
        evidence={
            meaning: tuple(run_logs.processes.evidence.get(meaning, ()))
            for meaning in (*network_verdict.causes, *network_verdict.notes)
        },
        slow=expected_bandwidth.slow_reasons(run_logs.processes, wordings, network_verdict.nccl),
    )


def _check_network(
    name: RunName, network_verdict: Verdict, expectations: Expectations, run_logs: RunLogs
) -> Iterator[Problem]:
    """Yield what is wrong with the network that the channels use."""
    where = tuple(
        line for process in run_logs.processes.by_host_and_pid.values() for line in process.first_lines.values()
    )[:4]
    if network_verdict.network == "unknown":
        yield Problem(network_verdict.sentence, DEBUG_FIX, where, "unknown")
    elif name == "tcp":
        if network_verdict.network != "fallback" or any(
            "Socket" not in channel for channel in network_verdict.channels if channel.startswith("NET/")
        ):
            fix = "NCCL_NET=Socket must reach every rank: pyxis needs --container-env=NCCL_NET"
            yield Problem(f"the TCP leg is not TCP alone: {network_verdict.sentence}", fix, where)
    elif network_verdict.network == "one node" and expectations.nodes in (None, 1):
        return
    elif network_verdict.network not in GOOD_NETWORKS[expectations.fabric] or not network_verdict.good:
        evidence = sorted(
            run_logs.processes.evidence.items(), key=lambda entry: entry[0] not in network_verdict.sentence
        )
        failure = network_verdict.failure
        failure_lines = (failure.where,) if failure and failure.sentence in network_verdict.sentence else ()
        yield Problem(
            network_verdict.sentence,
            FIXES[expectations.fabric],
            where or (*failure_lines, *chain(*(lines for _, lines in evidence)))[:4],
        )


def _logged_ranks(job_nodes: Iterable[NodeResult]) -> set[int]:
    return {rank for node in job_nodes for rank in node.ranks}


def _check_coverage(
    name: RunName, job_nodes: Sequence[NodeResult], expectations: Expectations, run_logs: RunLogs, refused: bool
) -> Iterator[Problem]:
    """Yield ranks without a line in the logs, and more or fewer nodes than the job asked for.

    Yields nothing where NCCL refused to start: a rank has no number before it has a network.
    """
    if refused:
        return
    ranks = run_logs.processes.ranks
    measured = any(table.rows or table.devices for table in run_logs.tables)
    repeated = sorted(
        rank for rank, times in Counter(rank for node in job_nodes for rank in node.ranks).items() if times > 1
    )
    if measured or expectations.ranks == ranks or (expectations.ranks is None and not repeated):
        silent = sorted(set(range(expectations.ranks or ranks)) - _logged_ranks(job_nodes))
        yield from _check_communicator(job_nodes, expectations, run_logs, repeated)
        if silent:
            listed = ", ".join(map(str, silent[:8])) + (" …" if len(silent) > 8 else "")
            sentence = f"{len(silent)} of {expectations.ranks or ranks} ranks have no line in the logs: {listed}"
            yield Problem(sentence, DEBUG_FIX, (), "unknown")
        missing = bool(silent)
    else:  # a training need not have a communicator of all ranks: those of its groups count from 0 each
        logged_ranks = sum(
            max(map(len, process.communicators.values()), default=0)
            for process in run_logs.processes.by_host_and_pid.values()
        )
        missing = logged_ranks < (expectations.ranks or 0)
        if missing:
            yield Problem(
                f"{logged_ranks} of {expectations.ranks} ranks have lines in the logs", DEBUG_FIX, (), "unknown"
            )
    if expectations.nodes and job_nodes and len(job_nodes) != expectations.nodes and name == "fabric":
        hosts = ", ".join(node.name for node in job_nodes[:8])
        sentence = f"{format_count(len(job_nodes), 'node')}, not the {expectations.nodes} asked for: {hosts}"
        uncertain = len(job_nodes) < expectations.nodes and missing  # those that say nothing may be on the others
        yield Problem(
            sentence, DEBUG_FIX if uncertain else "", _rank_lines(run_logs)[:4], "unknown" if uncertain else "error"
        )


def _check_communicator(
    job_nodes: Sequence[NodeResult], expectations: Expectations, run_logs: RunLogs, repeated: Sequence[int]
) -> Iterator[Problem]:
    """Yield a wrong size or number of nodes of all ranks, or a rank on two nodes."""
    ranks, node_count = run_logs.processes.ranks, run_logs.processes.nodes
    if ranks and expectations.ranks and ranks != expectations.ranks:
        yield Problem(
            f"the job ran {ranks} ranks, not the {expectations.ranks} asked for", MPI_FIX, _rank_lines(run_logs)[:4]
        )
    if expectations.nodes and node_count and node_count != expectations.nodes:
        yield Problem(
            f"NCCL counts {format_count(node_count, 'node')}, not the {expectations.nodes} asked for",
            MPI_FIX,
            _rank_lines(run_logs)[:4],
        )
    if repeated:
        hosts = ", ".join(node.name for node in job_nodes if repeated[0] in node.ranks)
        yield Problem(f"rank {repeated[0]} is on more than one node: {hosts}", MPI_FIX, _rank_lines(run_logs)[:4])


def _rank_lines(run_logs: RunLogs) -> tuple[str, ...]:
    """Return the lines that name the ranks of the largest communicator."""
    processes = run_logs.processes
    return tuple(
        line for process in processes.by_host_and_pid.values() for line in processes.job_ranks(process).values()
    )


def _check_rows(tables: Sequence[SizesParser]) -> Iterator[Problem]:
    """Yield what is wrong with what nccl-tests measured."""
    for table in tables:
        yield from _check_processes(table)
        wrong = [
            row for row in table.rows if any(timing and timing.wrong for timing in (row.out_of_place, row.in_place))
        ]
        if wrong:
            sizes = ", ".join(format_size(row.size) for row in wrong[:4])
            fix = "the network corrupted data: do not train on these nodes; on eRDMA look at the MTU of every node"
            yield Problem(f"wrong elements at {sizes}", fix, tuple(row.where for row in wrong[:4]))
        elif table.out_of_bounds and table.out_of_bounds.value != "0":
            yield Problem(f"{table.out_of_bounds.value} values out of bounds", "", (table.out_of_bounds.where,))
        if not table.concluded and (table.rows or table.largest) and not table.failure:
            position = f" after {format_size(table.rows[-1].size)}" if table.rows else " before its first row"
            where = table.rows[-1].where if table.rows else table.largest.where if table.largest else ""
            yield Problem(f"the measurement is not complete: the log stops{position}", "", (where,), "unknown")


def _check_processes(table: SizesParser) -> Iterator[Problem]:
    """Yield failed or late processes of nccl-tests, and GPUs that two of them share."""
    if table.failure:
        yield Problem(f"nccl-tests failed: {table.failure.value}", "", (table.failure.where,))
    for (host, gpu), ranks_read in table.shared.items():
        ranks = ", ".join(rank.value for rank in ranks_read[:8])
        fix = "give each process of a node a GPU of its own: look at CUDA_VISIBLE_DEVICES and NCCL_TESTS_DEVICE"
        yield Problem(f"ranks {ranks} share GPU {gpu} of {host}", fix, tuple(rank.where for rank in ranks_read[:4]))
    for late in table.late[:4]:
        number, share = late.value.split()
        location = f" on {table.devices[int(number)].value}" if int(number) in table.devices else ""
        fix = "run the job again without that node"
        yield Problem(f"process {number}{location} takes {share} longer than the median", fix, (late.where,), "warning")


def _check_world_size(rows: Sequence[Measurement], expectations: Expectations, run_logs: RunLogs) -> Iterator[Problem]:
    """Yield a problem if each process measured alone, by the bus bandwidth's formula."""
    expected = expectations.ranks or run_logs.processes.ranks
    row = max(rows, key=lambda row: row.size, default=None)
    ranks = expected_bandwidth.ranks_by_formula(row) if row else None
    if row and ranks and expected and ranks != expected:
        yield Problem(
            f"{ranks} ranks measured, and not {expected}: busbw / algbw of {format_size(row.size)} says so",
            MPI_FIX,
            (row.where,),
        )


def _merge_equal(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return each sentence once, with all its lines, errors first."""
    by_sentence: dict[str, Problem] = {}
    for problem in problems:
        equal_problem = by_sentence.get(problem.sentence)
        by_sentence[problem.sentence] = (
            replace(problem, where=tuple(dict.fromkeys((*equal_problem.where, *problem.where))))
            if equal_problem
            else problem
        )
    return tuple(
        sorted(by_sentence.values(), key=lambda problem: ("error", "unknown", "warning").index(problem.severity))
    )


def _measurements(tables: Sequence[SizesParser], collective: str) -> tuple[Measurement, ...]:
    """Return all rows; of one that is there as text and as JSON, the more precise."""
    best: dict[tuple[str, int, str, str, str, int], Measurement] = {}
    for table in tables:
        times: dict[tuple[str, int, str, str, str], int] = {}
        for row in table.rows:
            named_row = replace(row, collective=row.collective or collective)
            key = (named_row.collective, named_row.size, named_row.type, named_row.redop, named_row.root)
            times[key] = times.get(key, 0) + 1
            best_row = best.get((*key, times[key]))
            if best_row is None or _digits(row) > _digits(best_row):
                best[*key, times[key]] = named_row
    return tuple(best.values())


def _digits(row: Measurement) -> int:
    timing: Timing | None = row.out_of_place or row.in_place
    return len(repr(timing.busbw)) if timing else 0
