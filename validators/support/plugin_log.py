"""Read from a log which steps the plugin for libfabric took: loaded, started, registered memory, connected."""

import re
from dataclasses import dataclass

from rdma_images.nccl_logs.log_patterns import LogPatterns
from rdma_images.nccl_logs.reader import LogReader

LOADED = re.compile(r"NET/Plugin: Loaded net plugin (?P<name>.+?) \((?P<interface>v\d+)\)")
STARTED = re.compile(r"NET/OFI Initializing aws-ofi-nccl (?P<version>\S+)")
LIBFABRIC = re.compile(r"NET/OFI Using Libfabric version (?P<version>\S+)")

# As libfabric's hook "trace" writes it, where it was asked to and is compiled in.
REGISTERED = re.compile(r"<trace> mr 0x[0-9a-f]+ len (?P<bytes>\d+) flags ")


@dataclass(frozen=True)
class PluginSteps:
    """The steps that the log shows; what it does not show is empty."""

    interfaces: tuple[str, ...]  # "v11", those of ncclNetPlugin_v* that NCCL took
    version: str  # of aws-ofi-nccl
    libfabric: str
    providers: tuple[str, ...]
    registered: tuple[int, ...]  # bytes of each region of memory; () where libfabric traced none
    nodes: int  # 0 where NCCL does not say: before 2.20
    channels: int  # over libfabric
    other_networks: tuple[str, ...]  # networks of channels that are not libfabric's

    @property
    def is_complete(self) -> bool:
        """Return whether the log shows every step, and no channel uses anything else."""
        steps = self.interfaces and self.version and self.providers and self.channels
        return bool(steps) and self.nodes != 1 and not self.other_networks

    @property
    def sentence(self) -> str:
        """Return the steps in one line."""
        memory = f"{len(self.registered)} regions of memory registered ({sum(self.registered) >> 20} MiB)"
        steps = (
            f"loaded as {', '.join(self.interfaces)}" if self.interfaces else "not loaded",
            f"aws-ofi-nccl {self.version} with libfabric {self.libfabric}" if self.version else "not started",
            f"provider {', '.join(self.providers)}" if self.providers else "no provider",
            *([memory] if self.registered else []),
            f"{self.channels} channels over libfabric{f' between {self.nodes} nodes' if self.nodes else ''}",
            *(f"channels over {name}" for name in self.other_networks),
        )
        return ", ".join(steps)


def plugin_steps(log: str, patterns: LogPatterns) -> PluginSteps:
    """Return the steps that the log of all ranks of an all-reduce between nodes shows."""
    reader = LogReader(patterns)
    reader.read(log)
    summary = reader.summary()
    libfabric_networks = {name for name in summary.networks if patterns.carrier_of(name) == "libfabric"}
    counted = (
        n
        for channel, n in summary.channels.items()
        if channel.split("/")[0] == "NET" and channel.split("/")[1] in libfabric_networks
    )
    return PluginSteps(
        interfaces=tuple(sorted({match["interface"] for match in LOADED.finditer(log)})),
        version=_first_match(STARTED, log),
        libfabric=_first_match(LIBFABRIC, log),
        providers=tuple(sorted(summary.processes.values("provider"))),
        registered=tuple(int(match["bytes"]) for match in REGISTERED.finditer(log)),
        nodes=max(summary.processes.nodes.values(), default=0),
        channels=sum(counted),
        other_networks=tuple(sorted(summary.networks - libfabric_networks)),
    )


def _first_match(pattern: re.Pattern[str], log: str) -> str:
    match = pattern.search(log)
    return match["version"] if match else ""
