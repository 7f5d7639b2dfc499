"""What an NCCL log says of the network: its lines, as job runners leave them, taken apart into what each tells."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from rdma_images.facts.nccl_logs import NcclLogs, Wording

# What colours a line or moves a cursor, and whatever else a terminal would act on, tabs left out.
CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
    r"|\x9b[0-?]*[ -/]*[@-~]|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
)
MESSAGE = re.compile(r"\bNCCL (?:INFO|WARN|ERROR|TRACE) ")
LONGEST = 4096  # characters of a message; NCCL's own buffers are no longer

VERSION = re.compile(r"NCCL version (\d+(?:\.\d+)+)")
CHANNEL = re.compile(
    r"Channel \d+(?:/\d+)? : (?P<sender>\d+)\[\w+\] -> (?P<receiver>\d+)\[\w+\] (?:\[\w+\] )?via (?P<way>.*)"
)
# The device ends the network's name: without one the line was cut, and so may the name be. "(3)" is the rank that sends
# in this one's stead.
NET = re.compile(r"NET/(?P<network>[^/]*)(?P<whole>/\d+(?:\(\d+\))?(?P<gdr>/GDRDMA)?)?")
INSIDE = re.compile(r"(?:P2P|SHM)(?:/\w+)?")
ANNOUNCED = re.compile(r"Using network (?P<network>.+?)\s*$")
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (?P<provider>[\w;-]+)")
DEVICES = re.compile(r"NET/IB : Using (?P<devices>[^;]*)")
DEVICE = re.compile(r"\[\d+\] ?(?P<name>[\w.-]+):\d+/")  # in braces where NCCL merged several into one
RANKS = re.compile(r"\bn[Rr]anks (?P<ranks>\d+)(?: nNodes (?P<nodes>\d+))?")


@dataclass
class Read:
    """What the lines of a log say, each thing once, whichever rank said it."""

    nccl: str | None = None
    spoken: bool = False  # a line of NCCL's is among them
    channels: Counter[str] = field(default_factory=Counter)  # "NET/Libfabric/GDRDMA", "P2P/CUMEM"
    networks: set[str] = field(default_factory=set)  # of the channels, a name that was cut with "…"
    senders: set[int] = field(default_factory=set)  # the ranks whose own lines about channels are there
    receivers: set[int] = field(default_factory=set)
    ranks: int = 0  # of the largest communicator
    nodes: dict[int, int] = field(default_factory=dict)  # by the ranks of the communicator
    announced: set[str] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)  # of libfabric
    devices: set[str] = field(default_factory=set)  # of libibverbs
    causes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()  # those of the causes that no job gets over
    notes: tuple[str, ...] = ()
    crashes: tuple[str, ...] = ()


def plain(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a job's output without control characters, and out of the JSON that engines wrap them in."""
    for line in lines:
        for part in _unwrapped(line):
            yield CONTROL.sub("", part)


def _unwrapped(line: str) -> Iterator[str]:
    """The line, or all the text that is in it where it is an object of JSON."""
    held = None
    if line.startswith("{"):
        try:
            held = json.loads(line)
        except (ValueError, RecursionError):
            held = None
    if held is None:
        yield line
    else:
        yield from (part for value in held.values() if isinstance(value, str) for part in value.splitlines())


def read(lines: Iterable[str], wordings: NcclLogs) -> Read:
    """Everything that the lines of a log say. More than one rank's message may be in a line."""
    found = Read()
    said: dict[str, None] = {}
    other: dict[str, None] = {}
    for line in plain(lines):
        before, *messages = MESSAGE.split(line)
        found.nccl = found.nccl or next(iter(VERSION.findall(line)), None)
        if not messages:
            other[before] = None
        for message in messages:
            found.spoken = True
            if not _channel(found, message[:LONGEST]):
                said[message[:LONGEST]] = None
    for message in said:
        _told(found, message)
    # A name that was cut says nothing new where it begins one that was not.
    cut = {name for name in found.networks if name.endswith("…")}
    whole = found.networks - cut
    found.networks -= {name for name in cut if any(other.startswith(name[:-1]) for other in whole)}
    found.causes = _meanings(said, wordings.causes.values(), found.nccl)
    found.faults = _meanings(said, (row for row in wordings.causes.values() if row.stops), found.nccl)
    found.notes = _meanings(said, wordings.notes.values(), found.nccl)
    found.crashes = _meanings(chain(said, other), wordings.crashes.values(), found.nccl)
    return found


def _channel(found: Read, message: str) -> bool:
    """Note the channel that the message is about; False where it is about none."""
    match = CHANNEL.search(message)
    if not match:
        return False
    way = match.group("way")
    if net := NET.match(way):
        name = net.group("network").strip()
        if not net.group("whole"):
            found.networks.add(f"{name}…")
            return True
        found.networks.add(name)
        found.channels[f"NET/{name}{net.group('gdr') or ''}"] += 1
    elif inside := INSIDE.match(way):
        found.channels[inside.group()] += 1
        found.senders.add(int(match.group("sender")))
        found.receivers.add(int(match.group("receiver")))
    return True


def _told(found: Read, message: str) -> None:
    """Note what else a message tells: the network announced, providers, devices, the size of the job."""
    if match := ANNOUNCED.search(message):
        found.announced.add(match.group("network"))
    elif match := PROVIDER.search(message):
        found.providers.add(match.group("provider"))
    elif match := DEVICES.search(message):
        found.devices.update(DEVICE.findall(match.group("devices")))
    elif match := RANKS.search(message):
        ranks = int(match.group("ranks"))
        found.ranks = max(found.ranks, ranks)
        if match.group("nodes"):
            found.nodes[ranks] = max(found.nodes.get(ranks, 0), int(match.group("nodes")))


def _meanings(lines: Iterable[str], rows: Iterable[Wording], version: str | None) -> tuple[str, ...]:
    """The meanings of the lines that have one, in the order of the table: later rows explain earlier ones."""
    known = list(lines)
    told = [row for row in rows if not row.beside or any(re.search(row.beside, line) for line in known)]
    found = (row.meaning(line, version) for row in told for line in known)
    return tuple(dict.fromkeys(meaning for meaning in found if meaning))
