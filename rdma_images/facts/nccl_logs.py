"""What is known about the lines of NCCL's logs."""

import re
from typing import Literal

from rdma_images.facts.origin import FactsFile, Span


class Wording(Span):
    """A line by its wording, and what it means. `{name}` in `why` is what the group of that name matched."""

    says: str
    why: str
    of: Literal["nccl", "aws-ofi-nccl"] = "nccl"

    def meaning(self, line: str, version: str | None) -> str | None:
        """What `line` means if an NCCL of this version (None: not known) wrote it; None for another line."""
        if version and self.of == "nccl" and not self.holds(version):
            return None
        match = re.search(self.says, line)
        return self.why.format(**{key: value or "" for key, value in match.groupdict().items()}) if match else None


class NcclLogs(FactsFile):
    """facts/nccl-logs.yaml."""

    causes: dict[str, Wording]
    notes: dict[str, Wording]
    crashes: dict[str, Wording]
