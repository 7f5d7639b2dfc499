"""The nodes of a run: what the processes on each say together, and what is wrong with it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain
from typing import NamedTuple

from rdma_images.jobs.results.expectations import COMPONENTS, Expectations
from rdma_images.jobs.results.result import NodeResult, ResultProblem, ValueWithSource
from rdma_images.nccl_logs.processes import Process, Processes

RELEASE = re.compile(r"\d+(?:\.\d+)*")


def node_results(processes: Processes, expectations: Expectations) -> tuple[NodeResult, ...]:
    """Return the nodes by name; on one host, each value of NCCL_HOSTID is a node."""
    groups: dict[str, list[Process]] = {}
    for process in processes.by_host_and_pid.values():
        hostid = "".join(process.values.get("hostid", ()))
        groups.setdefault(f"{process.host} ({hostid})" if hostid else process.host, []).append(process)
    result = [
        _node(name, group, set(chain(*(processes.job_ranks(process) for process in group))), expectations)
        for name, group in groups.items()
    ]
    return tuple(sorted(result, key=lambda node: (node.ranks or (1 << 30,), node.name)))


def _node(name: str, group: Sequence[Process], ranks: Set[int], expectations: Expectations) -> NodeResult:
    """Return what a node's processes say, the worst of each value."""
    values = {key: _values(group, key) for key in (*COMPONENTS, "provider", "adapters")}
    adapters = [value for value in values["adapters"] if value.value != "0"] or values["adapters"]
    providers = sorted(values["provider"], key=lambda sourced: sourced.value.startswith("efa"))
    return NodeResult(
        name=name,
        ranks=tuple(sorted(ranks)),
        expected=expectations.adapters,
        adapters=min(adapters, key=lambda sourced: int(sourced.value), default=None),
        devices=next((process.devices for process in group if process.devices), ()),
        used=_count_used_devices(group) or None,
        provider=next(iter(providers), None),
        plugin=next(iter(values["plugin"]), None),
        libfabric=next(iter(values["libfabric"]), None),
        nccl=next(iter(values["nccl"]), None),
        gpudirect=_gpudirect(group),
    )


def _values(group: Iterable[Process], name: str) -> list[ValueWithSource]:
    """Return the different values that the processes name, each once."""
    places: dict[str, str] = {}
    for process in group:
        places = {**process.values.get(name, {}), **places}
    return [ValueWithSource(value, place) for value, place in places.items()]


def _count_used_devices(group: Iterable[Process]) -> int:
    """Return how many devices the channels over RDMA use."""
    channels = (channel for process in group for channel in process.channels)
    return len({(network, device) for network, device, _ in channels if "Socket" not in network})


def _gpudirect(group: Iterable[Process]) -> ValueWithSource | None:
    """Return how many channels use GPUDirect: "yes", "no", or a count; None if no line says it."""
    counts: Counter[bool] = Counter()
    places: dict[bool, str] = {}
    for process in group:
        for key, times in process.channels.items():
            counts[key[2]] += times
            places.setdefault(key[2], process.places[key])
    if not counts:
        return None
    if counts[False] and counts[True]:
        return ValueWithSource(f"{counts[True]} of {counts.total()} channels", places[False])
    return ValueWithSource("no" if counts[False] else "yes", places[bool(counts[True])])


def problems(run_nodes: Sequence[NodeResult], expectations: Expectations) -> Iterator[ResultProblem]:
    """Yield what is wrong with nodes, equal problems together."""
    affected_nodes: dict[tuple[str, str], list[tuple[NodeResult, str]]] = {}
    for node in run_nodes:
        for problem in _node_problems(node, expectations):
            affected_nodes.setdefault((problem.sentence, problem.fix), []).append((node, problem.where))
    for (sentence, fix), affected in affected_nodes.items():
        names = [node.name for node, _ in affected]
        listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        subject = "every node" if len(names) == len(run_nodes) > 1 else listed
        yield ResultProblem(f"{subject}: {sentence}", fix, tuple(where for _, where in affected if where)[:8])


class _NodeProblem(NamedTuple):
    """A fault of a node, its fix, and the line of a log that shows it."""

    sentence: str
    fix: str
    where: str


def _node_problems(node: NodeResult, expectations: Expectations) -> Iterator[_NodeProblem]:
    if expectations.adapters and node.adapters and int(node.adapters.value) < expectations.adapters:
        yield _few_adapters(node.adapters, expectations)
    elif node.devices and node.used and node.used < len(node.devices):
        yield _NodeProblem(
            f"channels use {node.used} of its {len(node.devices)} devices",
            "without NVLink all GPUs take the first device: give NCCL_GRAPH_FILE, or fewer GPUs a device",
            node.adapters.where if node.adapters else "",
        )
    for name, component in COMPONENTS.items():
        value: ValueWithSource | None = getattr(node, name)
        expected = expectations.versions.get(name)
        if value and expected and not _same_version(value.value, expected):
            yield _NodeProblem(
                f"{component} is {value.value}, and the image's report says {expected}",
                "look for a library that is mounted over the image's, or LD_LIBRARY_PATH in the job",
                value.where,
            )


def _few_adapters(adapters: ValueWithSource, expectations: Expectations) -> _NodeProblem:
    """Return the problem of a node on which NCCL uses too few adapters."""
    fix = {
        "efa": "ask for vpc.amazonaws.com/efa: {n} in every pod; kubectl describe node says what the node has",
        "erdma": "let the eRDMA controller give all devices (allocateAllDevices: true), and name all in NCCL_IB_HCA",
        None: "give the pods all of the node's adapters",
    }[expectations.fabric]
    wanted = f"{expectations.adapters} adapters"
    wanted = f"the {wanted} of {expectations.instance}" if expectations.instance else wanted
    return _NodeProblem(f"only {adapters.value} of {wanted}", fix.format(n=expectations.adapters), adapters.where)


def _same_version(logged_version: str, expected: str) -> bool:
    """Return whether a logged version, maybe cut at its end, is the image's."""
    logged, planned = (RELEASE.match(version) for version in (logged_version, expected))
    if not logged or not planned:
        return logged_version == expected
    parts = zip(logged[0].split("."), planned[0].split("."), strict=False)
    return all(logged_part == planned_part for logged_part, planned_part in parts)
