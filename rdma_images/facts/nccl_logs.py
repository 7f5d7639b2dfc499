"""Facts about the lines of NCCL's logs."""

import re
from typing import Any, Literal, Self

from pydantic import model_validator

from rdma_images.facts import facts_file
from rdma_images.facts.facts_file import Fact, FactsFile, Pattern, VersionedFact
from rdma_images.nccl_logs.log_patterns import LogPatterns

Carrier = Literal["libfabric", "verbs", "tcp"]


class PatternFact(VersionedFact):
    """A pattern of lines, and their meaning: the fields of `LogPattern`, with their sources."""

    pattern: Pattern
    why: str
    component: Literal["nccl", "aws-ofi-nccl"] = "nccl"
    requires_line: Pattern = ""
    is_fatal: bool = False
    after_start: bool = False
    slows_job: bool = False
    in_any_line: bool = False
    supersedes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _groups(self) -> Self:
        try:
            self.why.format(**dict.fromkeys(re.compile(self.pattern).groupindex, ""))
        except (KeyError, IndexError, AttributeError, ValueError) as error:
            raise ValueError(f"why names a group that pattern lacks: {error}") from None
        return self


class NamedNetwork(Fact):
    """A network by the pattern of its name in NCCL, and what it sends over."""

    name: Pattern
    carrier: Carrier


class NcclLogFacts(FactsFile):
    """facts/nccl-logs.yaml."""

    FILE = "nccl-logs.yaml"

    networks: dict[str, NamedNetwork]
    causes: dict[str, PatternFact]
    notes: dict[str, PatternFact]

    def plain(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the tables without their sources, as `LogPatterns` takes them; JSON can hold it."""
        tables: dict[str, dict[str, Any]] = {"networks": self.networks, "causes": self.causes, "notes": self.notes}
        return {
            title: {
                name: row.model_dump(mode="json", exclude={"source", "sources"}, exclude_defaults=True)
                for name, row in rows.items()
            }
            for title, rows in tables.items()
        }


def load_log_patterns() -> LogPatterns:
    """Return what lines of NCCL's logs mean, by facts/nccl-logs.yaml."""
    return LogPatterns(facts_file.read(NcclLogFacts).plain())
