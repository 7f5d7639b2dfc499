"""Judge which network NCCL's channels use: not what was found or announced."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Tuple

from rdma_images.nccl_logs.log_patterns import LogPatterns
from rdma_images.nccl_logs.reader import LogReader, LogSummary

# "efa", "eRDMA", "InfiniBand", "one node", "fallback", "refused", "unknown"
NetworkSentence = Tuple[str, str]  # the network, and the sentence

FABRIC_NETWORKS = {"efa": "efa", "erdma": "eRDMA", "ib": "InfiniBand"}  # the network over each fabric
GOOD_NETWORKS = (*FABRIC_NETWORKS.values(), "one node")
EFA = re.compile(r"efa(?:;.*)?")  # libfabric's name of a provider, with those layered over it
MAX_FAULTS = 3  # in a sentence
WHILE_RUNNING = "the transport failed while the job ran"
ALL_RANKS = "give the log of all ranks, with NCCL_DEBUG=INFO and no NCCL_DEBUG_SUBSYS"


@dataclass(frozen=True)
class Verdict:
    """The network of NCCL's channels, and `sentence`, which says it in one line.

    `good` is True only if the channels show it.
    """

    network: str
    good: bool
    sentence: str
    nccl: str | None
    channels: dict[str, int]  # "NET/Libfabric/GDRDMA" -> how many
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ranks_logged: int = 0  # ranks of the largest communicator that have lines
    ranks: int = 0  # of the largest communicator; 0 where no line says it
    has_ended: bool = False  # a line was logged that no job survives

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0 good, 1 not good, 3 where the log does not say."""
        if self.network == "unknown":
            return 3
        return 0 if self.good else 1

    def is_over(self, fabric: str) -> bool:
        """Return whether the network is of this fabric; for "any", of EFA or eRDMA."""
        return self.network in (FABRIC_NETWORKS.values() if fabric == "any" else (FABRIC_NETWORKS[fabric],))

    @property
    def sentence_with_rank_count(self) -> str:
        """Return `sentence`, and how many of the job's ranks wrote lines if some did not."""
        if not 0 < self.ranks_logged < self.ranks or self.network == "refused":
            return self.sentence
        verb = "has" if self.ranks_logged == 1 else "have"
        return f"{self.sentence}; {self.ranks_logged} of {self.ranks} ranks {verb} lines in the log"


def judge_lines(lines: Iterable[str], patterns: LogPatterns) -> Verdict:
    """Return the verdict on the lines of a log."""
    reader = LogReader(patterns)
    reader.read("\n".join(lines))
    return judge_summary(reader.summary(), patterns)


def judge_summary(summary: LogSummary, patterns: LogPatterns) -> Verdict:
    """Return the verdict on the summary of a job's logs."""
    network, sentence = _judge(summary, patterns)
    if network == "unknown" and summary.fatal_fault:
        network, sentence = "refused", f"the job ended: {summary.fatal_fault}"
    good = network in GOOD_NETWORKS and not summary.faults
    if network in GOOD_NETWORKS and summary.faults:
        sentence = f"{sentence}, but {'; '.join(summary.faults[-MAX_FAULTS:])}"
    elif summary.channels and summary.transfer_fault and summary.transfer_fault not in sentence:
        sentence = f"{sentence}; {WHILE_RUNNING}: {summary.transfer_fault}"
    if quotes := _quotes(network, summary):
        sentence = f"{sentence}; quoted, and not looked into further: {', '.join(quotes)}"
    return Verdict(
        network,
        good,
        sentence,
        summary.nccl,
        dict(summary.channels),
        summary.causes,
        summary.notes,
        len(summary.processes.logged_ranks()),
        summary.processes.ranks,
        bool(summary.fatal_fault),
    )


def _quotes(network: str, summary: LogSummary) -> list[str]:
    """Return quotes of unexplained lines: NCCL's first warning if no network is known, and a traceback's last line."""
    if summary.faults:
        return []
    has_no_network = network in ("unknown", "refused") or (network == "fallback" and not summary.channels)
    quotes = [f'NCCL\'s first warning "{summary.first_warning}"'] if summary.first_warning and has_no_network else []
    return quotes + ([f'the first traceback\'s last line "{summary.traceback}"'] if summary.traceback else [])


def _judge(summary: LogSummary, patterns: LogPatterns) -> NetworkSentence:
    """Return the network and the sentence.

    They are those of the channels; without any, what kept NCCL from having one.
    """
    if summary.networks:
        return _judge_channels(summary, patterns)
    if summary.fatal_fault and not summary.channels:
        lead = WHILE_RUNNING if summary.fatal_fault == summary.transfer_fault else "NCCL did not start"
        return "refused", f"{lead}: {summary.fatal_fault}" if summary.has_nccl_lines else summary.fatal_fault
    if _is_single_node(summary):
        return "one node", f"no channel uses a network: all are inside one node ({_channel_counts(summary.channels)})"
    return _judge_announcements(summary, patterns)


def _is_single_node(summary: LogSummary) -> bool:
    """Return whether all ranks are known to be on one node.

    Newer versions of NCCL log it. In the log of an older one all ranks must have lines, and channels to each other
    alone: a rank with a neighbour on another node names the network that connects them.
    """
    nodes, ranks = summary.processes.nodes, summary.processes.ranks
    if nodes:
        return max(nodes.values()) == 1 and max(nodes) >= ranks
    return bool(summary.senders) and summary.receivers <= summary.senders and len(summary.senders) >= ranks


def _judge_channels(summary: LogSummary, patterns: LogPatterns) -> NetworkSentence:
    carriers = {name: patterns.carrier_of(name) for name in summary.networks}
    counted = _channel_counts({name: count for name, count in summary.channels.items() if name.startswith("NET/")})
    if "tcp" in carriers.values():
        return "fallback", f"the channels use TCP sockets ({counted}): {_causes(summary)}"
    if unknown_networks := sorted(name for name, carrier in carriers.items() if carrier is None):
        return "unknown", f"a channel uses {', '.join(unknown_networks)}, a network that is not known here ({counted})"
    if _has_announced_sockets(summary, patterns):
        sentence = f"some ranks announced TCP sockets, beside the channels of others ({counted}): {_causes(summary)}"
        return "fallback", sentence
    if set(carriers.values()) == {"libfabric"}:
        return _judge_providers(summary, counted)
    if set(carriers.values()) == {"verbs"}:
        return _judge_devices(summary, counted)
    return "unknown", f"the channels use more than one network ({counted})"


def _judge_providers(summary: LogSummary, counted: str) -> NetworkSentence:
    """Judge channels over libfabric by the providers that it chose, on whichever host."""
    providers = sorted(summary.processes.values("provider"))
    other_providers = _not_efa(providers)
    if other_providers:
        suffix = " on some hosts" if len(other_providers) < len(providers) else ""
        return "fallback", f"the channels use libfabric over {', '.join(other_providers)}{suffix}, not EFA ({counted})"
    if not providers:
        return "unknown", f"the channels use libfabric ({counted}), and no line says over what: keep those with NET/OFI"
    return "efa", f"the channels use EFA ({counted}, provider {', '.join(providers)})"


def _judge_devices(summary: LogSummary, counted: str) -> NetworkSentence:
    """Judge channels over libibverbs by the devices that NCCL found, on whichever host."""
    devices = sorted({device for process in summary.processes for device in process.devices})
    kinds = {"erdma" in device for device in devices}
    detail = f"({counted} on {', '.join(devices)})"
    if kinds == {True}:
        return "eRDMA", f"the channels use eRDMA {detail}"
    if kinds == {False}:
        return "InfiniBand", f"the channels use InfiniBand or RoCE {detail}, not EFA or eRDMA"
    if kinds:
        return "unknown", f"the channels use RDMA on devices of more than one kind {detail}"
    return "unknown", f"the channels use RDMA ({counted}), and no line says on what: keep those with NET/IB"


def _judge_announcements(summary: LogSummary, patterns: LogPatterns) -> NetworkSentence:
    """Judge a log without a network's channel.

    NCCL's announcements can show a fallback, never a good network.
    """
    other_providers = _not_efa(sorted(summary.processes.values("provider")))
    if other_providers:
        names = ", ".join(other_providers)
        return "fallback", f"libfabric chose {names}, not EFA, and no channel of a network is in the log"
    if _has_announced_sockets(summary, patterns):
        nodes = max(summary.processes.nodes.values(), default=0)
        job = f"for a job on {nodes} nodes, " if nodes > 1 else ""
        sentence = f"NCCL announced TCP sockets, {job}and no channel of a network is in the log: {_causes(summary)}"
        return "fallback", sentence
    if summary.channels:
        counted = _channel_counts(summary.channels)
        return "unknown", f"the log has channels inside a node only ({counted}), and not of all ranks: {ALL_RANKS}"
    if announced := sorted(summary.processes.values("network")):
        faults = f"; {'; '.join(summary.faults)}" if summary.faults else ""
        return "unknown", f"NCCL announced {', '.join(announced)}{faults}, and no channel is in the log: {ALL_RANKS}"
    if summary.has_nccl_lines:
        causes = f"; {_causes(summary)}" if summary.causes else ""
        return "unknown", f"the log names no network and no channel: it ends before NCCL had one{causes}"
    if summary.faults:  # of another program's transfers
        return "fallback", "; ".join(summary.faults)
    return "unknown", "no line of NCCL's is in the log: run the job with NCCL_DEBUG=INFO and keep what it prints"


def _has_announced_sockets(summary: LogSummary, patterns: LogPatterns) -> bool:
    """Return whether a rank has no other network than TCP.

    On one node that is healthy: none is used there.
    """
    return any(patterns.carrier_of(name) == "tcp" for name in summary.processes.values("network"))


def _not_efa(providers: list[str]) -> list[str]:
    """Return the providers that are not EFA's."""
    return [name for name in providers if not EFA.fullmatch(name)]


def _causes(summary: LogSummary) -> str:
    return "; ".join(summary.causes) or "the log does not say why"


def _channel_counts(channels: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(channels.items())) or "none is in the log"
