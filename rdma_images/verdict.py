"""What an NCCL log says about the network: not what was found or announced, but what the channels use."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rdma_images import paths, yamlfile
from rdma_images.errors import RdmaImagesError
from rdma_images.facts.nccl_logs import NcclLogs, Wording

Network = Literal["efa", "eRDMA", "InfiniBand", "other", "fallback", "one node", "refused", "unknown"]

MESSAGE = re.compile(r"NCCL (?:INFO|WARN|ERROR|TRACE) (?P<said>.*)$")
VERSION = re.compile(r"NCCL version (\d+(?:\.\d+)+)")
CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : .*? via (?P<way>NET|P2P|SHM|COLLNET|NVLS|direct)\b(?:/(?P<rest>.*))?")
NET = re.compile(r"(?P<network>[^/]+)(?:/\d+)*(?P<gdr>/GDRDMA)?(?:/\S*)?$")
ANNOUNCED = re.compile(r"Using network (?P<network>.+?)\s*$")
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (?P<provider>[\w;-]+)")
DEVICES = re.compile(r"NET/IB : Using (?P<devices>(?:\[\d+\]\S+ ?)+)")
LIMIT = 512 * 1024 * 1024  # bytes of a log


@dataclass(frozen=True)
class Verdict:
    """What NCCL's channels use. `sentence` says it in one line; `good` is False where the fabric is not used."""

    network: Network
    good: bool
    sentence: str
    nccl: str | None
    channels: Mapping[str, int]  # "NET/Libfabric/GDRDMA" -> how many
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class Read:
    """What was read off the lines of a log."""

    nccl: str | None
    channels: Counter[str]
    announced: str | None
    provider: str | None
    devices: tuple[str, ...]
    causes: tuple[str, ...]
    notes: tuple[str, ...]
    crashed: tuple[str, ...]


def verdict(path: Path) -> Verdict:
    """The verdict on the log at `path`. Raises RdmaImagesError where it cannot be read, or is no NCCL log."""
    try:
        if path.stat().st_size > LIMIT:
            raise RdmaImagesError(f"{path} is larger than {LIMIT >> 20} MiB: keep only the lines with NCCL")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RdmaImagesError(f"{path} cannot be read: {error.strerror}") from None
    found = judged(text.splitlines(), logs())
    if found.network == "unknown" and found.nccl is None:
        raise RdmaImagesError(f"{path} has no line of NCCL's: run the job with NCCL_DEBUG=INFO and keep what it prints")
    return found


def logs() -> NcclLogs:
    """facts/nccl-logs.yaml."""
    return yamlfile.load(paths.FACTS / "nccl-logs.yaml", NcclLogs)


def judged(lines: Iterable[str], wordings: NcclLogs) -> Verdict:
    """The verdict on the lines of a log."""
    found = read(list(lines), wordings)
    networks = {name.split("/")[1] for name in found.channels if name.startswith("NET/")}
    if networks:
        return _by_channels(found, networks)
    if found.channels:
        ways = _counted(found.channels)
        return _answer(found, "one node", True, f"no channel uses a network: all are inside one node ({ways})")
    if found.crashed:
        return _answer(found, "refused", False, f"NCCL crashed: {found.crashed[-1]}")
    if any("refused" in cause for cause in found.causes):
        return _answer(found, "refused", False, f"NCCL did not start: {found.causes[-1]}")
    if found.announced:
        return _by_announcement(found)
    return _answer(found, "unknown", False, "the log names no network and no channel: it ends before NCCL had one")


def read(lines: list[str], wordings: NcclLogs) -> Read:
    """Everything that the lines say, each thing once, in their order."""
    version = next((match.group(1) for line in lines if (match := VERSION.search(line))), None)
    found = Read(version, Counter(), None, None, (), (), (), ())
    said = [match.group("said") for line in lines if (match := MESSAGE.search(line))]
    for message in said:
        if match := CHANNEL.search(message):
            found.channels[_channel(match)] += 1
        elif match := ANNOUNCED.search(message):
            found.announced = match.group("network")
        elif match := PROVIDER.search(message):
            found.provider = match.group("provider")
        elif match := DEVICES.search(message):
            found.devices = tuple(re.sub(r"^\[\d+\]|:.*$", "", word) for word in match.group("devices").split())
    found.causes = _meanings(said, wordings.causes, version)
    found.notes = _meanings(said, wordings.notes, version)
    found.crashed = _meanings(lines, wordings.crashes, version)
    return found


def _meanings(lines: Iterable[str], table: Mapping[str, Wording], version: str | None) -> tuple[str, ...]:
    """The meanings of the lines that have one, in the order of the table: later rows explain earlier ones."""
    distinct = list(dict.fromkeys(lines))
    found = (row.meaning(line, version) for row in table.values() for line in distinct)
    return tuple(dict.fromkeys(meaning for meaning in found if meaning))


def _channel(match: "re.Match[str]") -> str:
    """ "NET/Libfabric/GDRDMA", "NET/Socket", "P2P/CUMEM": the way without the device's number."""
    way, rest = match.group("way"), (match.group("rest") or "").strip()
    if way != "NET":
        return "/".join(filter(None, (way, rest.split("/")[0].split(" ")[0])))
    net = NET.match(rest)
    return f"NET/{net.group('network')}{net.group('gdr') or ''}" if net else f"NET/{rest}"


def _by_channels(found: Read, networks: set[str]) -> Verdict:
    counted = _counted(Counter({n: c for n, c in found.channels.items() if n.startswith("NET/")}))
    if "Socket" in networks:
        return _answer(found, "fallback", False, f"the channels use TCP sockets ({counted}): {_why(found)}")
    kinds = {_kind(name, found) for name in networks}
    if kinds == {"efa"}:
        return _answer(found, "efa", True, f"the channels use EFA ({counted}{_of_provider(found)})")
    if kinds == {"eRDMA"}:
        said = f"the channels use eRDMA ({counted} on {', '.join(found.devices)})"
        return _answer(found, "eRDMA", True, said)
    if "fallback" in kinds:
        said = f"the channels use libfabric over {found.provider}, not EFA ({counted})"
        return _answer(found, "fallback", False, said)
    network: Network = "InfiniBand" if kinds == {"InfiniBand"} else "other"
    said = f"the channels use {', '.join(sorted(networks))} ({counted}), not EFA or eRDMA"
    return _answer(found, network, True, said)


def _kind(network: str, found: Read) -> Network:
    if network in ("Libfabric", "AWS Libfabric"):
        return "efa" if (found.provider or "efa").startswith("efa") else "fallback"
    if network == "IB" or network.startswith("IBext"):
        return "eRDMA" if found.devices and all(d.startswith("erdma") for d in found.devices) else "InfiniBand"
    return "other"


def _by_announcement(found: Read) -> Verdict:
    """A log without channels (of a run that ended early, or with fewer subsystems) can only be taken at its word."""
    name = str(found.announced)
    if name == "Socket":
        said = f"NCCL announced TCP sockets, and no channel is in the log: {_why(found)}"
        return _answer(found, "fallback", False, said)
    kind = _kind(name, found)
    said = f"NCCL announced {name}{_of_provider(found)}, and no channel is in the log"
    return _answer(found, kind, kind != "fallback", said)


def _why(found: Read) -> str:
    return "; ".join(found.causes) or "the log does not say why"


def _of_provider(found: Read) -> str:
    return f", provider {found.provider}" if found.provider else ""


def _counted(channels: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(channels.items()))


def _answer(found: Read, network: Network, good: bool, sentence: str) -> Verdict:
    return Verdict(network, good, sentence, found.nccl, dict(found.channels), found.causes, found.notes)
