"""Facts about the lines with which jobs fail, whichever part writes them."""

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from rdma_images.facts.origin import FactsFile, Pattern, Row, VersionedRow

Weight = Literal["cause", "effect", "retry"]


class Failure(VersionedRow):
    """A kind of failure by its lines' wordings; `{name}` in `why` is a group of them."""

    patterns: tuple[Pattern, ...]
    why: str = ""  # what it is, and what to do; "" for a line that says only that something ended
    weight: Weight = "cause"  # effect: of what ended before, mostly elsewhere; retry: it is tried again
    ended: bool = False  # no job goes on after it
    generic: bool = False  # words of any program: outside of an exception they may be of one that goes on
    network: bool | None = None  # whether it can be the network's fault; None: the line does not say
    requires_line: Pattern = ""  # found in some other line of the log, or this one means nothing
    layer: str = ""  # the part of the system that failed; "" where that depends on who writes the line

    @field_validator("patterns", mode="before")
    @classmethod
    def _one_or_more(cls, patterns: object) -> object:
        return [patterns] if isinstance(patterns, str) else patterns

    @model_validator(mode="after")
    def _groups(self) -> Self:
        for pattern in self.patterns:
            try:
                self.why.format(**dict.fromkeys(re.compile(pattern).groupindex, ""))
            except (KeyError, IndexError, AttributeError, ValueError) as error:
                raise ValueError(f"why names what is no group of {pattern}: {error}") from None
        return self

    def position(self, line: str) -> int:
        """Return where in `line` the first wording is; 0 where none is."""
        return next((match.start() for pattern in self.patterns if (match := re.search(pattern, line))), 0)

    def meaning(self, line: str) -> str | None:
        """Return what `line` means; None for another line."""
        for pattern in self.patterns:
            if match := re.search(pattern, line):
                return self.why.format(**{key: value or "" for key, value in match.groupdict().items()})
        return None


class SystemLayer(Row):
    """A part of the system, by the lines that it writes and the paths of its Python files."""

    name: str
    lines: Pattern = ""
    files: Pattern = ""
    network: bool = False  # it moves data between nodes


class Failures(FactsFile):
    """facts/failures.yaml."""

    FILE = "failures.yaml"

    layers: dict[str, SystemLayer]
    failures: dict[str, Failure] = Field(min_length=1)
