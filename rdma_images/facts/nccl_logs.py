"""Facts about the lines of NCCL's logs."""

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from rdma_images.facts.origin import FactsFile, Pattern, Row, VersionedRow

Carrier = Literal["libfabric", "verbs", "tcp"]


class Wording(VersionedRow):
    """A line by its wording, and its meaning; `{name}` in `why` is a group of it."""

    pattern: Pattern
    why: str
    component: Literal["nccl", "aws-ofi-nccl"] = Field(default="nccl", alias="of")
    requires_line: Pattern = ""  # found in some other line of the log, or this one means nothing
    stops: bool = False  # no job gets over it, whatever its channels use
    started: bool = False  # only an NCCL that has started writes it
    degrades: bool = False  # the job goes on, much slower than it should
    anywhere: bool = False  # also in lines that are not NCCL's
    instead_of: tuple[str, ...] = ()  # causes that say nothing beside it

    @model_validator(mode="after")
    def _groups(self) -> Self:
        try:
            self.why.format(**dict.fromkeys(re.compile(self.pattern).groupindex, ""))
        except (KeyError, IndexError, AttributeError, ValueError) as error:
            raise ValueError(f"why names what is no group of pattern: {error}") from None
        return self

    def fits(self, version: str | None) -> bool:
        """Return whether an NCCL of this version (None: not known) may have written it."""
        return not version or self.component != "nccl" or self.holds(version)

    def meaning(self, line: str) -> str | None:
        """Return what `line` means; None for another line."""
        match = re.search(self.pattern, line)
        return self.why.format(**{key: value or "" for key, value in match.groupdict().items()}) if match else None


class Transport(Row):
    """A network by the pattern of its name in NCCL, and what it sends over."""

    name: Pattern
    carrier: Carrier


class NcclLogs(FactsFile):
    """facts/nccl-logs.yaml."""

    FILE = "nccl-logs.yaml"

    networks: dict[str, Transport]
    causes: dict[str, Wording]
    notes: dict[str, Wording]
    slow: dict[str, Wording]

    @model_validator(mode="after")
    def _replaced(self) -> Self:
        unknown_causes = {name for row in self.causes.values() for name in row.instead_of} - self.causes.keys()
        if unknown_causes:
            raise ValueError(f"instead_of names no cause: {', '.join(sorted(unknown_causes))}")
        return self

    def find_carrier(self, network: str) -> Carrier | None:
        """Return what the network of this name sends over; None for one that is not known."""
        return next((row.carrier for row in self.networks.values() if re.fullmatch(row.name, network)), None)
