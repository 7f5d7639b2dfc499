"""Values of axes that are asked for and not there, with the reason."""

import re

from rdma_images.facts.facts_file import Fact, FactsFile, Pattern


class UnsupportedValue(Fact):
    """Values of an axis that no image can have; `match` matches them whole."""

    axis: str
    match: Pattern
    why: str
    fix: str


class Unsupported(FactsFile):
    """facts/unsupported.yaml."""

    FILE = "unsupported.yaml"

    values: tuple[UnsupportedValue, ...]

    def reason(self, axis: str, value: str) -> str:
        """Return why the axis does not have the value, and on a second line what to do; "" where no row says."""
        for row in self.values:
            if row.axis == axis and re.fullmatch(row.match, value, re.IGNORECASE):
                return f"{row.why} [{self.cite(row)}]\n{row.fix}"
        return ""
