"""Compare what the nodes of a job say in NCCL's lines: versions, plugin, adapters and network should be the same."""

import re
from collections import defaultdict
from itertools import islice

MAX_HOSTS = 10_000
MAX_NAMED = 3  # hosts that are named for one value
NO_PLUGIN = "none"

HOST = re.compile(r"([\w.-]{1,255}):\d{1,10}:\d{1,10} \[-?\d+\][^\[\]]*$")
IB_DEVICE = re.compile(r"\[\d+\] ?\{?[\w.-]+:\d+/")
# What is compared, the likeliest cause first: what a line must have in it, the name, and an expression for the value.
COMPARED_VALUES = (
    ("NCCL version ", "NCCL", re.compile(r"NCCL version (\d[\w.+-]*)")),
    ("net plugin", "the plugin", re.compile(r"(?i:loaded (?:external )?net plugin) (\S.*?)(?: \(v\d+\))?\s*$")),
    ("NET/OFI ", "the plugin", re.compile(r"NET/OFI (?:Initializing|Using) (aws-ofi-nccl \d[\w.-]*)")),
    ("NET/Plugin", "the plugin", re.compile(r"NET/Plugin ?: (?:No plugin found|Could not find: )()")),
    ("(found ", "the number of adapters", re.compile(r"NET/OFI Selected .*\(found (\d+) nics\)")),
    ("NET/IB : No device found", "the number of adapters", re.compile(r"NET/IB : No device found()")),
    ("Using network ", "the network", re.compile(r"Using network (\S.*?)\s*$")),
    ("cudaDriverVersion ", "CUDA's driver", re.compile(r"cudaDriverVersion (\d+)")),
)


class NodeDifferences:
    """The values of each node, and which of them are not the same."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))  # name -> host -> values

    def feed(self, prefix: str, message: str) -> None:
        """Read a message of NCCL's; `prefix` is what its line has before it."""
        for mark, name, pattern in COMPARED_VALUES:
            if mark in message and (match := pattern.search(message)):
                self._add(name, prefix, match[1] or {"the plugin": NO_PLUGIN}.get(name, "0"))
        if "NET/IB : Using " in message and (devices := IB_DEVICE.findall(message)):
            self._add("the number of adapters", prefix, str(len(devices)))

    def _add(self, name: str, prefix: str, value: str) -> None:
        hosts = self._values[name]
        if (host := HOST.search(prefix)) and (host[1] in hosts or len(hosts) < MAX_HOSTS):
            hosts[host[1]].add(value)

    def sentence(self) -> str:
        """Return what differs, with the nodes of each value; "" where no value does."""
        differences = {}
        for name in dict.fromkeys(name for _, name, _ in COMPARED_VALUES):
            nodes_by_value: dict[frozenset[str], list[str]] = defaultdict(list)
            for host, values in sorted(self._values[name].items()):
                nodes_by_value[frozenset(values - {NO_PLUGIN} or values)].append(host)
            if len(nodes_by_value) > 1 and not frozenset.intersection(*nodes_by_value):
                rarest_first = sorted(nodes_by_value.items(), key=lambda item: (len(item[1]), *sorted(item[0])))
                values_with_nodes = (
                    f"{' and '.join(sorted(values))} on {_list_hosts(nodes)}" for values, nodes in rarest_first
                )
                differences[name] = "; ".join(islice(values_with_nodes, MAX_NAMED))
        if "the plugin" in differences:  # which decides the other
            differences.pop("the network", None)
        return ". ".join(f"the nodes differ in {name}: {values}" for name, values in differences.items())


def _list_hosts(hosts: list[str]) -> str:
    """Return "n1, n2 and 5 others"."""
    remainder = f" and {len(hosts) - MAX_NAMED} others" if len(hosts) > MAX_NAMED else ""
    return ", ".join(hosts[:MAX_NAMED]) + remainder
