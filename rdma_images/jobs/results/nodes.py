"""The nodes of a leg: what the processes on each say together, and what is wrong with it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from rdma_images.facts.nccl_logs import NcclLogs
from rdma_images.jobs.results.expectations import COMPONENTS, Held
from rdma_images.jobs.results.processes import Process, Processes
from rdma_images.jobs.results.result import Node, Problem, Read

RELEASE = re.compile(r"\d+(?:\.\d+)*")
MTU = {"1": 256, "2": 512, "3": 1024, "4": 2048, "5": 4096}  # ibv_mtu -> bytes, from libibverbs' verbs.h


def nodes(processes: Processes, held: Held, wordings: NcclLogs) -> tuple[Node, ...]:
    """The nodes by name. NCCL_HOSTID makes nodes of one host, so it is part of the name where it is set."""
    groups: dict[str, list[Process]] = {}
    for process in processes.found.values():
        name = f"{process.host} ({process.hostid})" if process.hostid else process.host
        groups.setdefault(name, []).append(process)
    found = [
        _node(name, group, dict(chain(*(processes.ranks_of(process).items() for process in group))), held, wordings)
        for name, group in groups.items()
    ]
    return tuple(sorted(found, key=lambda node: (node.ranks or (1 << 30,), node.name)))


def _node(name: str, group: Sequence[Process], ranks: Mapping[int, str], held: Held, wordings: NcclLogs) -> Node:
    """What the processes of a node say; of values that differ, the one that is worst. `ranks` have their places."""
    said = {key: _values(group, key) for key in ("nccl", "plugin", "libfabric", "provider", "adapters", "mtu")}
    adapters = min(said["adapters"], key=lambda read: int(read.value), default=None)
    providers = sorted(said["provider"], key=lambda read: read.value.startswith("efa"))
    devices = next((process.devices for process in group if process.devices), ())
    used = _used(group, wordings)
    return Node(
        name=name,
        ranks=tuple(sorted(ranks)),
        expected=held.adapters,
        adapters=adapters,
        devices=devices,
        used=len(used) or None,
        provider=next(iter(providers), None),
        plugin=next(iter(said["plugin"]), None),
        libfabric=next(iter(said["libfabric"]), None),
        nccl=next(iter(said["nccl"]), None),
        gpudirect=_gpudirect(group),
        mtu=next((Read(str(MTU.get(read.value, read.value)), read.where) for read in said["mtu"]), None),
        ranks_where=tuple(ranks[rank] for rank in sorted(ranks)),
        used_where=tuple(used[key] for key in sorted(used, key=lambda key: (key[0], int(key[1])))),
    )


def _values(group: Iterable[Process], key: str) -> list[Read]:
    """The different values that the processes give, each once."""
    found: dict[str, Read] = {}
    for process in group:
        if read := process.said.get(key):
            found.setdefault(read.value, read)
    return list(found.values())


def _used(group: Iterable[Process], wordings: NcclLogs) -> dict[tuple[str, str], str]:
    """The devices that channels over RDMA use, each with the place of its first channel."""
    found: dict[tuple[str, str], str] = {}
    for process in group:
        for channel, place in process.places.items():
            network, device, _ = channel
            if wordings.over(network) != "tcp":
                found.setdefault((network, device), place)
    return found


def _gpudirect(group: Iterable[Process]) -> Read | None:
    """Whether the channels over a network go from GPU to adapter: "yes", "no", or how many of them."""
    counts: Counter[bool] = Counter()
    places: dict[bool, str] = {}
    for process in group:
        for key, times in process.channels.items():
            counts[key[2]] += times
            places.setdefault(key[2], process.places[key])
    if not counts:
        return None
    if counts[False] and counts[True]:
        return Read(f"{counts[True]} of {counts.total()} channels", places[False])
    return Read("no" if counts[False] else "yes", places[bool(counts[True])])


def problems(found: Sequence[Node], held: Held) -> Iterator[Problem]:
    """What is wrong with nodes, those alike together."""
    alike: dict[tuple[str, str], list[tuple[Node, str]]] = {}
    for node in found:
        for sentence, fix, where in _wrong(node, held):
            alike.setdefault((sentence, fix), []).append((node, where))
    for (sentence, fix), those in alike.items():
        names = [node.name for node, _ in those]
        some = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        which = "every node" if len(names) == len(found) > 1 else some
        yield Problem(f"{which}: {sentence}", fix, tuple(where for _, where in those if where)[:8])
    yield from _differing(found)


def _wrong(node: Node, held: Held) -> Iterator[tuple[str, str, str]]:
    """What is wrong with a node: the sentence, what to do, and where that stands."""
    if held.adapters and node.adapters and int(node.adapters.value) < held.adapters:
        yield _few_adapters(node.adapters, held)
    elif node.devices and node.used and node.used < len(node.devices):
        yield (
            f"channels use {node.used} of its {len(node.devices)} devices",
            "without NVLink all GPUs take the first device: give NCCL_GRAPH_FILE, or fewer GPUs a device",
            node.adapters.where if node.adapters else "",
        )
    yield from _small_mtu(node, held)
    for name, component in COMPONENTS.items():
        read = getattr(node, name)
        expected = held.versions.get(name)
        if read and expected and not _same(read.value, expected):
            yield (
                f"{component} is {read.value}, and the image's report says {expected}",
                "look for a library that is mounted over the image's, or LD_LIBRARY_PATH in the job",
                read.where,
            )


def _small_mtu(node: Node, held: Held) -> Iterator[tuple[str, str, str]]:
    """An MTU of RDMA that is not the largest that fits the interface's: the sizes are those of MTU."""
    largest = max((size for size in MTU.values() if held.mtu and size < held.mtu), default=None)
    if node.mtu and largest and int(node.mtu.value) != largest:
        fix = f"set the MTU of the node's eRDMA interfaces to {held.mtu}, as the job's was said to be"
        yield f"RDMA's MTU is {node.mtu.value} bytes, not {largest}", fix, node.mtu.where


def _few_adapters(adapters: Read, held: Held) -> tuple[str, str, str]:
    fix = {
        "efa": "ask for vpc.amazonaws.com/efa: {n} in every pod; kubectl describe node says what the node has",
        "erdma": "let the eRDMA controller give all devices (allocateAllDevices: true), and name all in NCCL_IB_HCA",
        None: "give the pods all of the node's adapters",
    }[held.fabric]
    of = f"the {held.adapters} adapters of {held.instance}" if held.instance else f"{held.adapters} adapters"
    return f"only {adapters.value} of {of}", fix.format(n=held.adapters), adapters.where


def _same(read: str, expected: str) -> bool:
    """Whether a version that a log says is the image's: a log may leave out the end ("2.6" of 2.6.0amzn1.0)."""
    said, wanted = (RELEASE.match(version) for version in (read, expected))
    if not said or not wanted:
        return read == expected
    return all(one == other for one, other in zip(said[0].split("."), wanted[0].split("."), strict=False))


def _differing(found: Sequence[Node]) -> Iterator[Problem]:
    """Values that must be the same on every node, and are not."""
    for name, what in {**COMPONENTS, "mtu": "the MTU"}.items():
        reads = {read.value: read for node in found if (read := getattr(node, name))}
        if len(reads) > 1:
            yield Problem(
                f"{what} differs between the nodes: {', '.join(sorted(reads))}",
                "give every node the same",
                tuple(read.where for read in reads.values())[:8],
            )
