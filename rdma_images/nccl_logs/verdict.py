"""Judge which network NCCL's channels use: not what was found or announced."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rdma_images.facts import facts_file
from rdma_images.facts.nccl_logs import NcclLogs
from rdma_images.nccl_logs import log_blocks
from rdma_images.nccl_logs.job_failure import JobFailure
from rdma_images.nccl_logs.parser import LogParser, LogSummary

Network = Literal["efa", "eRDMA", "InfiniBand", "one node", "fallback", "refused", "unknown"]
NetworkSentence = tuple[Network, str]  # and the sentence

GOOD_NETWORKS = ("efa", "eRDMA", "InfiniBand", "one node")
EFA = re.compile(r"efa(?:;.*)?")  # libfabric's name of a provider, with those layered over it
MAX_FAULTS = 3  # in a sentence
WHILE_RUNNING = "the transport failed while the job ran"
ALL_RANKS = "give the log of all ranks, with NCCL_DEBUG=INFO and no NCCL_DEBUG_SUBSYS"


@dataclass(frozen=True)
class Verdict:
    """The network of NCCL's channels, and `sentence`, which says it in one line.

    `good` is True only if the channels show it.
    """

    network: Network
    good: bool
    sentence: str
    nccl: str | None
    channels: Mapping[str, int]  # "NET/Libfabric/GDRDMA" -> how many
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failure: JobFailure | None = None  # what ended the job, whichever part it was
    has_ended: bool = False  # after a line of the log no job goes on, and this one has not

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0 good, 1 not good, 3 where the log does not say."""
        if self.network == "unknown":
            return 3
        is_reported = self.failure is not None and self.failure.has_ended and not self.failure.is_warning
        return 0 if self.good and not (self.has_ended or is_reported) else 1


def verdict(path: Path) -> Verdict:
    """Return the verdict on the log at `path`, a file or a pipe.

    Raises RdmaImagesError where it cannot be read.
    """
    wordings = load_wordings()
    log_parser = LogParser(wordings)
    for _, text in log_blocks.pieces(path):
        if not log_parser.is_cut(text):
            log_parser.feed(log_blocks.lines(text))
    return judge_summary(log_parser.summary(), wordings)


def logs_channels(subsystems: str) -> bool:
    """Return whether NCCL logs its channels with this value of NCCL_DEBUG_SUBSYS.

    They are of INIT and of NET.
    """
    names = set(subsystems.removeprefix("^").upper().split(","))
    if subsystems.startswith("^"):  # all but these
        return "ALL" not in names and not {"INIT", "NET"} <= names
    return bool(names & {"INIT", "NET", "ALL"})


def load_wordings() -> NcclLogs:
    """Return facts/nccl-logs.yaml."""
    return facts_file.read(NcclLogs)


def judge_lines(lines: Iterable[str], wordings: NcclLogs) -> Verdict:
    """Return the verdict on the lines of a log."""
    log_parser = LogParser(wordings)
    log_parser.feed(list(lines))
    return judge_summary(log_parser.summary(), wordings)


def judge_summary(summary: LogSummary, wordings: NcclLogs) -> Verdict:
    """Return the verdict on the summary of a job's logs."""
    network, sentence = _judge(summary, wordings)
    if network == "unknown" and summary.fatal_faults:
        network, sentence = "refused", f"the job ended: {summary.fatal_faults[-1]}"
    has_no_network = network in ("unknown", "refused") or _is_announced(network, summary)
    is_reported = bool(summary.faults) or summary.first_warning in _with_failure(network, sentence, summary)
    if has_no_network and not is_reported:
        sentence = f'{sentence}; NCCL\'s first warning, quoted and not judged: "{summary.first_warning}"'
    good = network in GOOD_NETWORKS and not summary.faults
    if network in GOOD_NETWORKS and summary.faults:
        sentence = f"{sentence}, but {'; '.join(summary.faults[-MAX_FAULTS:])}"
    elif summary.channels and summary.transfer_faults and summary.transfer_faults[-1] not in sentence:
        sentence = f"{sentence}; {WHILE_RUNNING}: {summary.transfer_faults[-1]}"
    if summary.differences:
        parts = (sentence, summary.differences) if network in GOOD_NETWORKS else (summary.differences, sentence)
        sentence = "; ".join(parts)
    return Verdict(
        network,
        good,
        _with_failure(network, sentence, summary),
        summary.nccl,
        dict(summary.channels),
        summary.causes,
        summary.notes,
        summary.failure,
        summary.has_ended,
    )


def _judge(summary: LogSummary, wordings: NcclLogs) -> NetworkSentence:
    """Return the network and the sentence.

    They are those of the channels; without any, what kept NCCL from having one.
    """
    if summary.networks:
        return _judge_channels(summary, wordings)
    failure = summary.failure
    if (
        summary.fatal_faults
        and not summary.channels
        and not (failure and failure.has_ended and failure.network is False)
    ):
        fault = summary.fatal_faults[-1]
        lead = WHILE_RUNNING if fault in summary.transfer_faults else "NCCL did not start"
        return "refused", f"{lead}: {fault}"
    if failure and failure.has_ended and not summary.channels:
        return "refused", f"the job ended before NCCL had a channel: {failure.sentence}"
    if _is_single_node(summary):
        return "one node", f"no channel uses a network: all are inside one node ({_channel_counts(summary.channels)})"
    return _judge_announcements(summary, wordings)


def _with_failure(network: Network, sentence: str, summary: LogSummary) -> str:
    """Add what ended the job: to a known network only where a line says that it ended.

    Where NCCL says why, what follows from that is not added.
    """
    failure = summary.failure
    if not failure and summary.has_ended and network in GOOD_NETWORKS and not summary.faults:
        return (
            f"{sentence}; the job ended, and no line says why: see the logs of all its ranks, and the first that ended"
        )
    if not failure or failure.sentence in sentence or ((failure.is_effect or failure.is_warning) and summary.faults):
        return sentence
    if failure.network and summary.fatal_faults:
        return sentence
    if failure.has_ended:
        lead = "the job ended, after a warning" if failure.is_warning else "the job ended"
        return f"{sentence}; {lead}: {failure.sentence}"
    if network != "unknown" and not _is_announced(network, summary):
        return sentence
    is_retry = failure.is_warning and bool(failure.why or not failure.is_probable)
    lead = "the log warns, which a job can get over" if is_retry else "the log's first failure"
    statement = f"{lead}: {failure.sentence}"
    return statement if failure.network is False and not summary.has_nccl_lines else f"{statement}; {sentence}"


def _is_announced(network: Network, summary: LogSummary) -> bool:
    """Return whether a fallback is known by NCCL's announcement alone.

    NCCL may have ended before it had a channel.
    """
    return network == "fallback" and not summary.channels


def _is_single_node(summary: LogSummary) -> bool:
    """Return whether all ranks are known to be on one node.

    Newer versions of NCCL log it. In the log of an older one all ranks must have lines, and channels to each other
    alone: a rank with a neighbour on another node names the network that connects them.
    """
    if summary.nodes:
        return max(summary.nodes.values()) == 1 and max(summary.nodes) >= summary.ranks
    return bool(summary.senders) and summary.receivers <= summary.senders and len(summary.senders) >= summary.ranks


def _judge_channels(summary: LogSummary, wordings: NcclLogs) -> NetworkSentence:
    network_paths = {name: wordings.find_carrier(name) for name in summary.networks}
    counted = _channel_counts({name: count for name, count in summary.channels.items() if name.startswith("NET/")})
    if "tcp" in network_paths.values():
        return "fallback", f"the channels use TCP sockets ({counted}): {_causes(summary)}"
    if unknown_networks := sorted(name for name, path in network_paths.items() if path is None):
        return (
            "unknown",
            f"a channel uses {', '.join(unknown_networks)}, which facts/nccl-logs.yaml does not know ({counted})",
        )
    if _announced_sockets(summary, wordings):
        return (
            "fallback",
            f"some ranks announced TCP sockets, beside the channels of others ({counted}): {_causes(summary)}",
        )
    if set(network_paths.values()) == {"libfabric"}:
        return _judge_providers(summary, counted)
    if set(network_paths.values()) == {"verbs"}:
        return _judge_devices(summary, counted)
    return "unknown", f"the channels use more than one network ({counted})"


def _judge_providers(summary: LogSummary, counted: str) -> NetworkSentence:
    """Judge channels over libfabric by the providers that it chose, on whichever host."""
    if other_providers := _not_efa(summary):
        suffix = " on some hosts" if len(other_providers) < len(summary.providers) else ""
        return "fallback", f"the channels use libfabric over {', '.join(other_providers)}{suffix}, not EFA ({counted})"
    if not summary.providers:
        return "unknown", f"the channels use libfabric ({counted}), and no line says over what: keep those with NET/OFI"
    return "efa", f"the channels use EFA ({counted}, provider {', '.join(sorted(summary.providers))})"


def _judge_devices(summary: LogSummary, counted: str) -> NetworkSentence:
    """Judge channels over libibverbs by the devices that NCCL found, on whichever host."""
    kinds = {name.startswith("erdma") for name in summary.devices}
    detail = f"({counted} on {', '.join(sorted(summary.devices))})"
    if kinds == {True}:
        return "eRDMA", f"the channels use eRDMA {detail}"
    if kinds == {False}:
        return "InfiniBand", f"the channels use InfiniBand or RoCE {detail}, not EFA or eRDMA"
    if kinds:
        return "unknown", f"the channels use RDMA on devices of more than one kind {detail}"
    return "unknown", f"the channels use RDMA ({counted}), and no line says on what: keep those with NET/IB"


def _judge_announcements(summary: LogSummary, wordings: NcclLogs) -> NetworkSentence:
    """Judge a log without a network's channel.

    What NCCL announced can show a fallback, never a good network.
    """
    if other_providers := _not_efa(summary):
        return (
            "fallback",
            f"libfabric chose {', '.join(other_providers)}, not EFA, and no channel of a network is in the log",
        )
    if _announced_sockets(summary, wordings):
        nodes = max(summary.nodes.values(), default=0)
        job = f"for a job on {nodes} nodes, " if nodes > 1 else ""
        return (
            "fallback",
            f"NCCL announced TCP sockets, {job}and no channel of a network is in the log: {_causes(summary)}",
        )
    if summary.channels:
        counted_channels = _channel_counts(summary.channels)
        return (
            "unknown",
            f"the log has channels inside a node only ({counted_channels}), and not of all ranks: {ALL_RANKS}",
        )
    if summary.announced:
        names = ", ".join(sorted(summary.announced))
        faults = f"; {'; '.join(summary.faults)}" if summary.faults else ""
        return "unknown", f"NCCL announced {names}{faults}, and no channel is in the log: {ALL_RANKS}"
    if summary.has_nccl_lines:
        causes = f"; {_causes(summary)}" if summary.causes else ""
        return "unknown", f"the log names no network and no channel: it ends before NCCL had one{causes}"
    return "unknown", "no line of NCCL's is in the log: run the job with NCCL_DEBUG=INFO and keep what it prints"


def _announced_sockets(summary: LogSummary, wordings: NcclLogs) -> bool:
    """Return whether a rank has no other network than TCP.

    On one node that is healthy: none is used there.
    """
    return any(wordings.find_carrier(name) == "tcp" for name in summary.announced)


def _not_efa(summary: LogSummary) -> list[str]:
    """Return the providers that libfabric chose and that are not EFA's."""
    return sorted(name for name in summary.providers if not EFA.fullmatch(name))


def _causes(summary: LogSummary) -> str:
    return "; ".join(summary.causes) or "the log does not say why"


def _channel_counts(channels: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(channels.items())) or "none is in the log"
