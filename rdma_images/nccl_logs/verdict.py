"""What an NCCL log says about the network: not what was found or announced, but what the channels use."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rdma_images.facts import table as facts_table
from rdma_images.facts.nccl_logs import NcclLogs
from rdma_images.nccl_logs import log_blocks
from rdma_images.nccl_logs.parser import Read, Reader

Network = Literal["efa", "eRDMA", "InfiniBand", "one node", "fallback", "refused", "unknown"]
Answer = tuple[Network, str]  # and the sentence

GOOD = ("efa", "eRDMA", "InfiniBand", "one node")
EFA = re.compile(r"efa(?:;.*)?")  # libfabric's name of a provider, with those layered over it
ALL_RANKS = "give the log of all ranks, with NCCL_DEBUG=INFO and no NCCL_DEBUG_SUBSYS"


@dataclass(frozen=True)
class Verdict:
    """What NCCL's channels use. `sentence` says it in one line; `good` is True only where the channels show it."""

    network: Network
    good: bool
    sentence: str
    nccl: str | None
    channels: Mapping[str, int]  # "NET/Libfabric/GDRDMA" -> how many
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """What a process that was asked for it ends with: 0 good, 1 not good, 3 where the log does not say."""
        return 0 if self.good else 3 if self.network == "unknown" else 1


def verdict(path: Path) -> Verdict:
    """The verdict on the log at `path`, a file or a pipe. Raises RdmaImagesError where that cannot be read."""
    wordings = logs()
    reader = Reader(wordings)
    for _, text in log_blocks.pieces(path):
        if not reader.is_cut(text):
            reader.block(log_blocks.lines(text))
    return of_read(reader.result(), wordings)


def logs() -> NcclLogs:
    """facts/nccl-logs.yaml."""
    return facts_table.read("nccl-logs.yaml", NcclLogs)


def of_lines(lines: Iterable[str], wordings: NcclLogs) -> Verdict:
    """The verdict on the lines of a log."""
    return of_blocks([list(lines)], wordings)


def of_blocks(blocks: Iterable[Sequence[str]], wordings: NcclLogs) -> Verdict:
    """The verdict on blocks of lines: of one log, or of the logs of all ranks of a job one after another."""
    reader = Reader(wordings)
    for block in blocks:
        reader.block(block)
    return of_read(reader.result(), wordings)


def of_read(found: Read, wordings: NcclLogs) -> Verdict:
    """The verdict on what a reader found in the logs of a job."""
    network, sentence = _answer(found, wordings)
    good = network in GOOD and not found.faults
    if network in GOOD and found.faults:
        sentence = f"{sentence}, but {'; '.join(found.faults)}"
    return Verdict(network, good, sentence, found.nccl, dict(found.channels), found.causes, found.notes)


def _answer(found: Read, wordings: NcclLogs) -> Answer:
    """The network and the sentence: by the channels; without any, by what kept NCCL from having one."""
    if found.networks:
        return _by_channels(found, wordings)
    if found.crashes and not found.channels:
        return "refused", f"the job ended before NCCL had a channel: {found.crashes[-1]}"
    if found.faults and not found.channels:
        return "refused", f"NCCL did not start: {found.faults[-1]}"
    if _together(found):
        return "one node", f"no channel uses a network: all are inside one node ({_counted(found.channels)})"
    return _without_channels(found, wordings)


def _together(found: Read) -> bool:
    """All ranks are known to be on one node.

    Newer versions of NCCL say so. In the log of an older one all ranks must have lines, and channels to each other
    alone: a rank with a neighbour on another node names the network that connects them.
    """
    if found.nodes:
        return max(found.nodes.values()) == 1 and max(found.nodes) >= found.ranks
    return bool(found.senders) and found.receivers <= found.senders and len(found.senders) >= found.ranks


def _by_channels(found: Read, wordings: NcclLogs) -> Answer:
    ways = {name: wordings.over(name) for name in found.networks}
    counted = _counted({name: count for name, count in found.channels.items() if name.startswith("NET/")})
    if "tcp" in ways.values():
        return "fallback", f"the channels use TCP sockets ({counted}): {_why(found)}"
    if strange := sorted(name for name, way in ways.items() if way is None):
        return "unknown", f"a channel uses {', '.join(strange)}, which facts/nccl-logs.yaml does not know ({counted})"
    if _announced_sockets(found, wordings):
        return "fallback", f"some ranks announced TCP sockets, beside the channels of others ({counted}): {_why(found)}"
    if set(ways.values()) == {"libfabric"}:
        return _by_provider(found, counted)
    if set(ways.values()) == {"verbs"}:
        return _by_device(found, counted)
    return "unknown", f"the channels use more than one network ({counted})"


def _by_provider(found: Read, counted: str) -> Answer:
    """What channels over libfabric use: the providers that it chose, on whichever host."""
    if others := _not_efa(found):
        some = " on some hosts" if len(others) < len(found.providers) else ""
        return "fallback", f"the channels use libfabric over {', '.join(others)}{some}, not EFA ({counted})"
    if not found.providers:
        return "unknown", f"the channels use libfabric ({counted}), and no line says over what: keep those with NET/OFI"
    return "efa", f"the channels use EFA ({counted}, provider {', '.join(sorted(found.providers))})"


def _by_device(found: Read, counted: str) -> Answer:
    """What channels over libibverbs use: the devices that NCCL found, on whichever host."""
    kinds = {name.startswith("erdma") for name in found.devices}
    said = f"({counted} on {', '.join(sorted(found.devices))})"
    if kinds == {True}:
        return "eRDMA", f"the channels use eRDMA {said}"
    if kinds == {False}:
        return "InfiniBand", f"the channels use InfiniBand or RoCE {said}, not EFA or eRDMA"
    if kinds:
        return "unknown", f"the channels use RDMA on devices of more than one kind {said}"
    return "unknown", f"the channels use RDMA ({counted}), and no line says on what: keep those with NET/IB"


def _without_channels(found: Read, wordings: NcclLogs) -> Answer:
    """Where no channel of a network is in the log: what NCCL announced can show a fallback, never a good network."""
    if others := _not_efa(found):
        return "fallback", f"libfabric chose {', '.join(others)}, not EFA, and no channel of a network is in the log"
    if _announced_sockets(found, wordings):
        nodes = max(found.nodes.values(), default=0)
        job = f"for a job on {nodes} nodes, " if nodes > 1 else ""
        return "fallback", f"NCCL announced TCP sockets, {job}and no channel of a network is in the log: {_why(found)}"
    if found.channels:
        ways = _counted(found.channels)
        return "unknown", f"the log has channels inside a node only ({ways}), and not of all ranks: {ALL_RANKS}"
    if found.announced:
        names = ", ".join(sorted(found.announced))
        return "unknown", f"NCCL announced {names}, and no channel is in the log: {ALL_RANKS}"
    if found.has_nccl_lines:
        return "unknown", "the log names no network and no channel: it ends before NCCL had one"
    return "unknown", "no line of NCCL's is in the log: run the job with NCCL_DEBUG=INFO and keep what it prints"


def _announced_sockets(found: Read, wordings: NcclLogs) -> bool:
    """A rank has no other network than TCP. On one node that is healthy: none is used there."""
    return any(wordings.over(name) == "tcp" for name in found.announced)


def _not_efa(found: Read) -> list[str]:
    """The providers that libfabric chose and that are not EFA's."""
    return sorted(name for name in found.providers if not EFA.fullmatch(name))


def _why(found: Read) -> str:
    return "; ".join(found.causes) or "the log does not say why"


def _counted(channels: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(channels.items())) or "none is in the log"
