"""The result of one run of a job, from its logs: its verdict, nodes, rows and problems."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from rdma_images.core.plain import plain
from rdma_images.core.sizes import format_count, format_size
from rdma_images.facts.nccl_logs import load_log_patterns
from rdma_images.jobs.results import log_files, nodes
from rdma_images.jobs.results.expectations import Expectations
from rdma_images.jobs.results.nccl_tests import NcclTestsParser
from rdma_images.jobs.results.result import Measurement, NodeResult, ResultProblem, RunName, RunResult
from rdma_images.nccl_logs.reader import LogReader, LogSummary
from rdma_images.nccl_logs.verdict import Verdict, judge_summary

FIXES = {
    "efa": "see that each pod or container has its EFA devices, and NCCL_NET=Libfabric with FI_PROVIDER=efa",
    "erdma": "see that each pod or container has its eRDMA devices, and NCCL_NET=IB",
    None: "",
}
MPI_FIX = "each process measures alone: compile nccl-tests with MPI=1, and start the ranks by the MPI of the image"
DEBUG_FIX = "run the job with NCCL_DEBUG=INFO, and give the logs of all ranks"


@dataclass(frozen=True)
class RunLogs:
    """The content of a run's logs."""

    nccl: LogSummary
    verdict: Verdict
    tables: tuple[NcclTestsParser, ...]  # one a log


def read_run_logs(logs: Sequence[Path], base: Path | None = None) -> RunLogs:
    """Return the content of logs, whose lines are named relative to `base`.

    Raises FileError where one cannot be read.
    """
    patterns = load_log_patterns()
    reader, tables = LogReader(patterns), []
    for path in logs:
        name = plain(str(path.relative_to(base) if base and path.is_relative_to(base) else path))
        table = NcclTestsParser()
        for number, text in log_files.pieces(path):
            reader.read(text, name, number)
            table.read(text, name, number)
        tables.append(table)
    summary = reader.summary()
    return RunLogs(summary, judge_summary(summary, patterns), tuple(tables))


def judge_log(path: Path) -> Verdict:
    """Return the verdict on the log at `path`, a file or a pipe. Raises FileError where it cannot be read."""
    return read_run_logs([path]).verdict


def run_result(name: RunName, paths: Sequence[Path], expectations: Expectations, base: Path | None) -> RunResult:
    """Return what the logs at `paths` say of the run."""
    run_logs = read_run_logs(paths, base)
    verdict, processes = run_logs.verdict, run_logs.nccl.processes
    job_nodes = nodes.node_results(processes, expectations)
    parts = (
        _check_network(name, expectations, run_logs),
        _check_coverage(name, job_nodes, expectations, run_logs) if verdict.network != "refused" else (),
        chain(*map(_check_table, run_logs.tables)),
        tuple(nodes.problems(job_nodes, expectations)) if name == "fabric" else (),
    )
    problems = _merge_equal(chain(*parts))
    severities = {problem.severity for problem in problems}
    return RunResult(
        name=name,
        network=verdict.network,
        good=False if "error" in severities else None if "unknown" in severities else True,
        sentence=verdict.sentence,
        channels=dict(verdict.channels),
        ranks=len({rank for node in job_nodes for rank in node.ranks}),
        nodes=job_nodes,
        measurements=_measurements(run_logs.tables, expectations.collective),
        problems=problems,
        evidence={meaning: run_logs.nccl.places[meaning] for meaning in (*verdict.causes, *verdict.notes)},
    )


def _check_network(name: RunName, expectations: Expectations, run_logs: RunLogs) -> Iterator[ResultProblem]:
    """Yield what is wrong with the network that the channels use."""
    verdict, summary = run_logs.verdict, run_logs.nccl
    where = tuple(place for process in summary.processes for place in process.places.values())[:4]
    if verdict.network == "unknown":
        yield ResultProblem(verdict.sentence, DEBUG_FIX, where, "unknown")
    elif name == "tcp":
        over_network = [channel for channel in verdict.channels if channel.startswith("NET/")]
        if verdict.network != "fallback" or any("Socket" not in channel for channel in over_network):
            fix = "NCCL_NET=Socket must reach every rank: pyxis needs --container-env=NCCL_NET"
            yield ResultProblem(f"the run over TCP is not over TCP alone: {verdict.sentence}", fix, where)
    elif verdict.network == "one node" and expectations.nodes in (None, 1):
        return
    elif not verdict.is_over(expectations.fabric or "any") or not verdict.good:
        named_first = sorted(summary.places.items(), key=lambda entry: entry[0] not in verdict.sentence)
        evidence = tuple(chain(*(places for _, places in named_first)))
        yield ResultProblem(verdict.sentence, FIXES[expectations.fabric], where or evidence[:4])


def _check_coverage(
    name: RunName, job_nodes: Sequence[NodeResult], expectations: Expectations, run_logs: RunLogs
) -> Iterator[ResultProblem]:
    """Yield ranks without a line in the logs, and more or fewer nodes than the job asked for."""
    processes = run_logs.nccl.processes
    measured = any(table.rows for table in run_logs.tables)
    ranks = expectations.ranks or processes.ranks
    counts = Counter(rank for node in job_nodes for rank in node.ranks)
    repeated = sorted(rank for rank, times in counts.items() if times > 1)
    if measured or (ranks == processes.ranks and not (repeated and expectations.ranks is None)):
        yield from _check_communicator(job_nodes, expectations, run_logs, repeated)
        sentence = _silent_ranks(set(counts), ranks)
    else:  # a training need not have a communicator of all ranks: those of its groups count from 0 each
        logged = sum(max(map(len, process.communicators.values()), default=0) for process in processes)
        sentence = f"{logged} of {ranks} ranks have lines in the logs" if logged < (expectations.ranks or 0) else ""
    if sentence:
        yield ResultProblem(sentence, DEBUG_FIX, (), "unknown")
    if name == "fabric" and expectations.nodes and job_nodes:
        yield from _check_node_count(job_nodes, expectations.nodes, bool(sentence), _rank_lines(run_logs))


def _silent_ranks(logged: set[int], ranks: int) -> str:
    """Return which of the job's ranks have no line in the logs, in words; "" if each has one."""
    silent = sorted(set(range(ranks)) - logged)
    listed = ", ".join(map(str, silent[:8])) + (" …" if len(silent) > 8 else "")
    return f"{len(silent)} of {ranks} ranks have no line in the logs: {listed}" if silent else ""


def _check_node_count(
    job_nodes: Sequence[NodeResult], expected: int, are_ranks_missing: bool, where: tuple[str, ...]
) -> Iterator[ResultProblem]:
    """Yield more or fewer nodes than the job asked for; ranks that are missing may be on the others."""
    hosts = ", ".join(node.name for node in job_nodes[:8])
    sentence = f"{format_count(len(job_nodes), 'node')}, not the {expected} asked for: {hosts}"
    if len(job_nodes) < expected and are_ranks_missing:
        yield ResultProblem(sentence, DEBUG_FIX, where, "unknown")
    elif len(job_nodes) != expected:
        yield ResultProblem(sentence, "", where)


def _check_communicator(
    job_nodes: Sequence[NodeResult], expectations: Expectations, run_logs: RunLogs, repeated: Sequence[int]
) -> Iterator[ResultProblem]:
    """Yield a wrong size or number of nodes of all ranks, or a rank on two nodes."""
    processes = run_logs.nccl.processes
    node_count = max(processes.nodes.values(), default=0)
    if processes.ranks and expectations.ranks and processes.ranks != expectations.ranks:
        sentence = f"the job ran {processes.ranks} ranks, not the {expectations.ranks} asked for"
        yield ResultProblem(sentence, MPI_FIX, _rank_lines(run_logs))
    if expectations.nodes and node_count and node_count != expectations.nodes:
        sentence = f"NCCL counts {format_count(node_count, 'node')}, not the {expectations.nodes} asked for"
        yield ResultProblem(sentence, MPI_FIX, _rank_lines(run_logs))
    if repeated:
        hosts = ", ".join(node.name for node in job_nodes if repeated[0] in node.ranks)
        yield ResultProblem(f"rank {repeated[0]} is on more than one node: {hosts}", MPI_FIX, _rank_lines(run_logs))


def _rank_lines(run_logs: RunLogs) -> tuple[str, ...]:
    """Return the first lines that name the ranks of the largest communicator."""
    processes = run_logs.nccl.processes
    return tuple(place for process in processes for place in processes.job_ranks(process).values())[:4]


def _check_table(table: NcclTestsParser) -> Iterator[ResultProblem]:
    """Yield what is wrong with what nccl-tests measured in one log."""
    if table.failure:
        yield ResultProblem(f"nccl-tests failed: {table.failure.value}", "", (table.failure.where,))
    wrong = [row for row in table.rows if row.wrong]
    if wrong:
        sizes = ", ".join(format_size(row.size) for row in wrong[:4])
        fix = "the network corrupted data: do not train on these nodes; on eRDMA look at the MTU of every node"
        yield ResultProblem(f"wrong elements at {sizes}", fix, tuple(row.where for row in wrong[:4]))
    elif table.out_of_bounds and table.out_of_bounds.value != "0":
        yield ResultProblem(f"{table.out_of_bounds.value} values out of bounds", "", (table.out_of_bounds.where,))
    if not table.concluded and (table.rows or table.largest) and not table.failure:
        position = f" after {format_size(table.rows[-1].size)}" if table.rows else " before its first row"
        where = table.rows[-1].where if table.rows else table.largest.where if table.largest else ""
        yield ResultProblem(f"the measurement is not complete: the log stops{position}", "", (where,), "unknown")


def _merge_equal(problems: Iterable[ResultProblem]) -> tuple[ResultProblem, ...]:
    """Return each sentence once, with all its lines, errors first."""
    by_sentence: dict[str, ResultProblem] = {}
    for problem in problems:
        earlier = by_sentence.get(problem.sentence)
        where = tuple(dict.fromkeys((*(earlier.where if earlier else ()), *problem.where)))
        by_sentence[problem.sentence] = replace(problem, where=where)
    return tuple(sorted(by_sentence.values(), key=lambda problem: problem.severity))


def _measurements(tables: Sequence[NcclTestsParser], collective: str) -> tuple[Measurement, ...]:
    """Return the rows by what they measured; of one that several logs or tables have, the first."""
    rows: dict[tuple[str, int, str, str, str], Measurement] = {}
    for row in chain(*(table.rows for table in tables)):
        name = row.collective or collective
        rows.setdefault((name, row.size, row.type, row.redop, row.root), replace(row, collective=name))
    return tuple(rows.values())
