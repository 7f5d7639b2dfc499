"""A leg of a run: its verdict, its nodes, its rows, and what is wrong with it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from rdma_images.core.sizes import message
from rdma_images.jobs.results import causes, logs, nodes
from rdma_images.jobs.results.expectations import Held
from rdma_images.jobs.results.expected import ranks_by_formula
from rdma_images.jobs.results.logs import Logs
from rdma_images.jobs.results.nccl_tests import Table
from rdma_images.jobs.results.result import Half, Leg, LegName, Measurement, Node, Problem
from rdma_images.nccl_logs import verdict
from rdma_images.nccl_logs.verdict import Verdict

WANTED = {"efa": ("efa",), "erdma": ("eRDMA",), None: ("efa", "eRDMA", "InfiniBand")}
FIXES = {
    "efa": "see that each pod or container has its EFA devices, and NCCL_NET=Libfabric with FI_PROVIDER=efa",
    "erdma": "see that each pod or container has its eRDMA devices, and NCCL_NET=IB",
    None: "",
}
ALONE = "each process measures alone: compile nccl-tests with MPI=1, and start the ranks by the MPI of the image"
DEBUG = "run the job with NCCL_DEBUG=INFO, and give the logs of all ranks"


def leg(name: LegName, paths: Sequence[Path], held: Held, base: Path | None) -> Leg:
    """What the logs at `paths` say of the leg."""
    wordings = verdict.logs()
    read = logs.read(paths, wordings, base)
    said = verdict.of_read(read.nccl, wordings)
    found = nodes.nodes(read.processes, held, wordings)
    rows = _measurements(read.tables, held.collective)
    parts = (
        _network(name, said, held, read),
        _heard(name, found, held, read),
        _rows(read.tables),
        _alone(rows, held, read),
    )
    problems = _once(chain(*parts, nodes.problems(found, held) if name == "fabric" else ()))
    worst = {problem.severity for problem in problems}
    return Leg(
        name=name,
        network=said.network,
        good=False if "error" in worst else None if "unknown" in worst else True,
        sentence=said.sentence,
        channels=dict(said.channels),
        ranks=len(_ranks(found)),
        ranks_expected=held.ranks or read.processes.ranks or None,
        nodes=found,
        measurements=rows,
        problems=problems,
        evidence={one: tuple(read.processes.evidence.get(one, ())) for one in (*said.causes, *said.notes)},
        slow=causes.slow(read.processes, wordings, said.nccl),
    )


def _network(name: LegName, said: Verdict, held: Held, read: Logs) -> Iterator[Problem]:
    """What is wrong with the network that the channels use."""
    where = tuple(place for process in read.processes.found.values() for place in process.places.values())[:4]
    if said.network == "unknown":
        yield Problem(said.sentence, DEBUG, where, "unknown")
    elif name == "tcp":
        if said.network != "fallback" or any("Socket" not in way for way in said.channels if way.startswith("NET/")):
            fix = "NCCL_NET=Socket must reach every rank: pyxis needs --container-env=NCCL_NET"
            yield Problem(f"the TCP leg is not TCP alone: {said.sentence}", fix, where)
    elif said.network == "one node" and held.nodes in (None, 1):
        return
    elif said.network not in WANTED[held.fabric] or not said.good:
        evidence = sorted(read.processes.evidence.items(), key=lambda one: one[0] not in said.sentence)
        yield Problem(said.sentence, FIXES[held.fabric], where or tuple(chain(*(places for _, places in evidence)))[:4])


def _ranks(found: Iterable[Node]) -> set[int]:
    return {rank for node in found for rank in node.ranks}


def _heard(name: LegName, found: Sequence[Node], held: Held, read: Logs) -> Iterator[Problem]:
    """Ranks without a line in the logs, and more or fewer nodes than the job asked for."""
    ranks = read.processes.ranks
    measured = any(table.rows or table.devices for table in read.tables)
    twice = sorted(rank for rank, times in Counter(rank for node in found for rank in node.ranks).items() if times > 1)
    if measured or held.ranks == ranks or (held.ranks is None and not twice):
        silent = sorted(set(range(held.ranks or ranks)) - _ranks(found))
        yield from _communicator(found, held, read, twice)
        if silent:
            some = ", ".join(map(str, silent[:8])) + (" …" if len(silent) > 8 else "")
            said = f"{len(silent)} of {held.ranks or ranks} ranks have no line in the logs: {some}"
            yield Problem(said, DEBUG, (), "unknown")
        missing = bool(silent)
    else:  # a training need not have a communicator of all ranks: those of its groups count from 0 each
        speaking = sum(max(map(len, one.communicators.values()), default=0) for one in read.processes.found.values())
        missing = speaking < (held.ranks or 0)
        if missing:
            yield Problem(f"{speaking} of {held.ranks} ranks have lines in the logs", DEBUG, (), "unknown")
    if held.nodes and found and len(found) != held.nodes and name == "fabric":
        hosts = ", ".join(node.name for node in found[:8])
        sentence = f"{_nodes(len(found))}, not the {held.nodes} asked for: {hosts}"
        only = len(found) < held.nodes and missing  # those that say nothing may be on the others
        yield Problem(sentence, DEBUG if only else "", _places(read)[:4], "unknown" if only else "error")


def _communicator(found: Sequence[Node], held: Held, read: Logs, twice: Sequence[int]) -> Iterator[Problem]:
    """What is wrong with the communicator of all ranks: its size, its nodes, a rank that is on two of them."""
    ranks, nodes = read.processes.ranks, read.processes.nodes
    if ranks and held.ranks and ranks != held.ranks:
        yield Problem(f"the job ran {ranks} ranks, not the {held.ranks} asked for", ALONE, _places(read)[:4])
    if held.nodes and nodes and nodes != held.nodes:
        yield Problem(f"NCCL counts {_nodes(nodes)}, not the {held.nodes} asked for", ALONE, _places(read)[:4])
    if twice:
        hosts = ", ".join(node.name for node in found if twice[0] in node.ranks)
        yield Problem(f"rank {twice[0]} is on more than one node: {hosts}", ALONE, _places(read)[:4])


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''}"


def _places(read: Logs) -> tuple[str, ...]:
    of = read.processes
    return tuple(place for process in of.found.values() for place in of.ranks_of(process).values())


def _rows(tables: Sequence[Table]) -> Iterator[Problem]:
    """What is wrong with what nccl-tests measured."""
    for table in tables:
        yield from _processes(table)
        wrong = [row for row in table.rows if any(half and half.wrong for half in (row.out_of_place, row.in_place))]
        if wrong:
            sizes = ", ".join(message(row.size) for row in wrong[:4])
            fix = "the network corrupted data: do not train on these nodes; on eRDMA look at the MTU of every node"
            yield Problem(f"wrong elements at {sizes}", fix, tuple(row.where for row in wrong[:4]))
        elif table.out_of_bounds and table.out_of_bounds.value != "0":
            yield Problem(f"{table.out_of_bounds.value} values out of bounds", "", (table.out_of_bounds.where,))
        if not table.concluded and (table.rows or table.largest) and not table.failure:
            last = f" after {message(table.rows[-1].size)}" if table.rows else " before its first row"
            where = table.rows[-1].where if table.rows else table.largest.where if table.largest else ""
            yield Problem(f"the measurement is not complete: the log stops{last}", "", (where,), "unknown")


def _processes(table: Table) -> Iterator[Problem]:
    """What is wrong with the processes of nccl-tests: an end with a failure, a shared GPU, one that is late."""
    if table.failure:
        yield Problem(f"nccl-tests failed: {table.failure.value}", "", (table.failure.where,))
    for (host, gpu), reads in table.shared.items():
        ranks = ", ".join(read.value for read in reads[:8])
        fix = "give each process of a node a GPU of its own: look at CUDA_VISIBLE_DEVICES and NCCL_TESTS_DEVICE"
        yield Problem(f"ranks {ranks} share GPU {gpu} of {host}", fix, tuple(read.where for read in reads[:4]))
    for late in table.late[:4]:
        number, share = late.value.split()
        on = f" on {table.devices[int(number)].value}" if int(number) in table.devices else ""
        fix = "pair its node with others: job.pairs"
        yield Problem(f"process {number}{on} takes {share} longer than the median", fix, (late.where,), "warning")


def _alone(rows: Sequence[Measurement], held: Held, read: Logs) -> Iterator[Problem]:
    """Processes that each measured alone, as nccl-tests without MPI do: by the formula of the bus bandwidth."""
    expected = held.ranks or read.processes.ranks
    row = max(rows, key=lambda row: row.size, default=None)
    ranks = ranks_by_formula(row) if row else None
    if row and ranks and expected and ranks != expected:
        yield Problem(
            f"{ranks} ranks measured, and not {expected}: busbw / algbw of {message(row.size)} says so",
            ALONE,
            (row.where,),
        )


def _once(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Each sentence once, with all its places."""
    found: dict[str, Problem] = {}
    for one in problems:
        known = found.get(one.sentence)
        found[one.sentence] = replace(one, where=tuple(dict.fromkeys((*known.where, *one.where)))) if known else one
    return tuple(sorted(found.values(), key=lambda one: ("error", "unknown", "warning").index(one.severity)))


def _measurements(tables: Sequence[Table], collective: str) -> tuple[Measurement, ...]:
    """All rows. A run may have left a row as text and as JSON: the one with more digits is kept."""
    best: dict[tuple[str, int, str, str, str, int], Measurement] = {}
    for table in tables:
        times: dict[tuple[str, int, str, str, str], int] = {}
        for row in table.rows:
            named = replace(row, collective=row.collective or collective)
            key = (named.collective, named.size, named.type, named.redop, named.root)
            times[key] = times.get(key, 0) + 1
            known = best.get((*key, times[key]))
            if known is None or _digits(row) > _digits(known):
                best[*key, times[key]] = named
    return tuple(best.values())


def _digits(row: Measurement) -> int:
    half: Half | None = row.out_of_place or row.in_place
    return len(repr(half.busbw)) if half else 0
