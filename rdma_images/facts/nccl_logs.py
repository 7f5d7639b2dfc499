"""What is known about the lines of NCCL's logs."""

import re
from typing import Literal

from rdma_images.facts.origin import FactsFile, Row, Span

Way = Literal["libfabric", "verbs", "tcp"]


class Wording(Span):
    """A line by its wording, and what it means. `{name}` in `why` is what the group of that name matched."""

    says: str
    why: str
    of: Literal["nccl", "aws-ofi-nccl"] = "nccl"
    beside: str = ""  # found in some other line of the log, or this one means nothing
    stops: bool = False  # no job gets over it, whatever its channels use

    def meaning(self, line: str, version: str | None) -> str | None:
        """What `line` means if an NCCL of this version (None: not known) wrote it; None for another line."""
        if version and self.of == "nccl" and not self.holds(version):
            return None
        match = re.search(self.says, line)
        return self.why.format(**{key: value or "" for key, value in match.groupdict().items()}) if match else None


class Transport(Row):
    """A network by the name that NCCL knows it by, a regular expression, and what it sends over."""

    name: str
    over: Way


class NcclLogs(FactsFile):
    """facts/nccl-logs.yaml."""

    networks: dict[str, Transport]
    causes: dict[str, Wording]
    notes: dict[str, Wording]
    crashes: dict[str, Wording]

    def over(self, network: str) -> Way | None:
        """What the network of this name sends over; None for one that is not known."""
        return next((row.over for row in self.networks.values() if re.fullmatch(row.name, network)), None)
