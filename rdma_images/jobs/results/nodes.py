"""The nodes of a run: what the processes on each say together, and what is wrong with it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from rdma_images.facts.nccl_logs import NcclLogs
from rdma_images.jobs.results.expectations import COMPONENTS, Expectations
from rdma_images.jobs.results.processes import Processes, RankProcess
from rdma_images.jobs.results.result import NodeResult, Problem, SourcedValue

RELEASE = re.compile(r"\d+(?:\.\d+)*")
MTU = {"1": 256, "2": 512, "3": 1024, "4": 2048, "5": 4096}  # ibv_mtu -> bytes, from libibverbs' verbs.h


def nodes(processes: Processes, expectations: Expectations, wordings: NcclLogs) -> tuple[NodeResult, ...]:
    """Return the nodes by name, with NCCL_HOSTID where it is set: it parts one host."""
    groups: dict[str, list[RankProcess]] = {}
    for process in processes.by_host_and_pid.values():
        name = f"{process.host} ({process.hostid})" if process.hostid else process.host
        groups.setdefault(name, []).append(process)
    result = [
        _node(
            name,
            group,
            dict(chain(*(processes.job_ranks(process).items() for process in group))),
            expectations,
            wordings,
        )
        for name, group in groups.items()
    ]
    return tuple(sorted(result, key=lambda node: (node.ranks or (1 << 30,), node.name)))


def _node(
    name: str, group: Sequence[RankProcess], ranks: Mapping[int, str], expectations: Expectations, wordings: NcclLogs
) -> NodeResult:
    """Return what a node's processes say, the worst of each value; `ranks` by their lines."""
    values = {
        key: _distinct_values(group, key) for key in ("nccl", "plugin", "libfabric", "provider", "adapters", "mtu")
    }
    adapters = min(values["adapters"], key=lambda sourced: int(sourced.value), default=None)
    providers = sorted(values["provider"], key=lambda sourced: sourced.value.startswith("efa"))
    devices = next((process.devices for process in group if process.devices), ())
    used_devices = _used_devices(group, wordings)
    return NodeResult(
        name=name,
        ranks=tuple(sorted(ranks)),
        expected=expectations.adapters,
        adapters=adapters,
        devices=devices,
        used=len(used_devices) or None,
        provider=next(iter(providers), None),
        plugin=next(iter(values["plugin"]), None),
        libfabric=next(iter(values["libfabric"]), None),
        nccl=next(iter(values["nccl"]), None),
        gpudirect=_gpudirect(group),
        mtu=next((SourcedValue(str(MTU.get(mtu.value, mtu.value)), mtu.where) for mtu in values["mtu"]), None),
        ranks_where=tuple(ranks[rank] for rank in sorted(ranks)),
        used_where=tuple(used_devices[key] for key in sorted(used_devices, key=lambda key: (key[0], int(key[1])))),
    )


def _distinct_values(group: Iterable[RankProcess], key: str) -> list[SourcedValue]:
    """Return the different values that the processes name, each once."""
    by_value: dict[str, SourcedValue] = {}
    for process in group:
        if value := process.values.get(key):
            by_value.setdefault(value.value, value)
    return list(by_value.values())


def _used_devices(group: Iterable[RankProcess], wordings: NcclLogs) -> dict[tuple[str, str], str]:
    """Return the devices that channels over RDMA use, each with the line of its first channel."""
    devices: dict[tuple[str, str], str] = {}
    for process in group:
        for channel, line in process.first_lines.items():
            network, device, _ = channel
            if wordings.find_carrier(network) != "tcp":
                devices.setdefault((network, device), line)
    return devices


def _gpudirect(group: Iterable[RankProcess]) -> SourcedValue | None:
    """Return whether channels use GPUDirect: "yes", "no", or how many of them."""
    counts: Counter[bool] = Counter()
    lines: dict[bool, str] = {}
    for process in group:
        for key, times in process.channels.items():
            counts[key[2]] += times
            lines.setdefault(key[2], process.first_lines[key])
    if not counts:
        return None
    if counts[False] and counts[True]:
        return SourcedValue(f"{counts[True]} of {counts.total()} channels", lines[False])
    return SourcedValue("no" if counts[False] else "yes", lines[bool(counts[True])])


def problems(run_nodes: Sequence[NodeResult], expectations: Expectations) -> Iterator[Problem]:
    """Yield what is wrong with nodes, equal problems together."""
    affected_nodes: dict[tuple[str, str], list[tuple[NodeResult, str]]] = {}
    for node in run_nodes:
        for sentence, fix, where in _node_problems(node, expectations):
            affected_nodes.setdefault((sentence, fix), []).append((node, where))
    for (sentence, fix), affected in affected_nodes.items():
        names = [node.name for node, _ in affected]
        listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        subject = "every node" if len(names) == len(run_nodes) > 1 else listed
        yield Problem(f"{subject}: {sentence}", fix, tuple(where for _, where in affected if where)[:8])
    yield from _differences(run_nodes)


def _node_problems(node: NodeResult, expectations: Expectations) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with a node: the sentence, what to do, and the line that shows it."""
    if expectations.adapters and node.adapters and int(node.adapters.value) < expectations.adapters:
        yield _few_adapters(node.adapters, expectations)
    elif node.devices and node.used and node.used < len(node.devices):
        yield (
            f"channels use {node.used} of its {len(node.devices)} devices",
            "without NVLink all GPUs take the first device: give NCCL_GRAPH_FILE, or fewer GPUs a device",
            node.adapters.where if node.adapters else "",
        )
    yield from _small_mtu(node, expectations)
    for name, component in COMPONENTS.items():
        value = getattr(node, name)
        expected = expectations.versions.get(name)
        if value and expected and not _same_version(value.value, expected):
            yield (
                f"{component} is {value.value}, and the image's report says {expected}",
                "look for a library that is mounted over the image's, or LD_LIBRARY_PATH in the job",
                value.where,
            )


def _small_mtu(node: NodeResult, expectations: Expectations) -> Iterator[tuple[str, str, str]]:
    """Yield an MTU of RDMA that is not the largest that fits the interface's."""
    largest = max((size for size in MTU.values() if expectations.mtu and size < expectations.mtu), default=None)
    if node.mtu and largest and int(node.mtu.value) != largest:
        fix = f"set the MTU of the node's eRDMA interfaces to {expectations.mtu}, as the job's was said to be"
        yield f"RDMA's MTU is {node.mtu.value} bytes, not {largest}", fix, node.mtu.where


def _few_adapters(adapters: SourcedValue, expectations: Expectations) -> tuple[str, str, str]:
    """Return the problem of a node on which NCCL uses too few adapters, its fix, and the log's line."""
    fix = {
        "efa": "ask for vpc.amazonaws.com/efa: {n} in every pod; kubectl describe node says what the node has",
        "erdma": "let the eRDMA controller give all devices (allocateAllDevices: true), and name all in NCCL_IB_HCA",
        None: "give the pods all of the node's adapters",
    }[expectations.fabric]
    adapters_expected = (
        f"the {expectations.adapters} adapters of {expectations.instance}"
        if expectations.instance
        else f"{expectations.adapters} adapters"
    )
    return f"only {adapters.value} of {adapters_expected}", fix.format(n=expectations.adapters), adapters.where


def _same_version(logged_version: str, expected: str) -> bool:
    """Return whether a logged version, maybe cut at its end, is the image's."""
    logged, planned = (RELEASE.match(version) for version in (logged_version, expected))
    if not logged or not planned:
        return logged_version == expected
    return all(
        logged_part == planned_part
        for logged_part, planned_part in zip(logged[0].split("."), planned[0].split("."), strict=False)
    )


def _differences(run_nodes: Sequence[NodeResult]) -> Iterator[Problem]:
    """Yield values that must be the same on every node, and are not."""
    for name, noun in {**COMPONENTS, "mtu": "the MTU"}.items():
        by_value = {value.value: value for node in run_nodes if (value := getattr(node, name))}
        if len(by_value) > 1:
            yield Problem(
                f"{noun} differs between the nodes: {', '.join(sorted(by_value))}",
                "give every node the same",
                tuple(value.where for value in by_value.values())[:8],
            )
