"""The outcome of a check of an image."""

from dataclasses import dataclass
from typing import Literal

from rdma_images.core.plain import plain

Tier = Literal["static", "device", "gpu", "datapath"]
Severity = Literal["error", "warning", "note"]  # a note is advice, shown on request
Outcome = Literal["passed", "failed", "skipped", "not measured"]  # the last: the clock ended what measures


@dataclass(frozen=True)
class Check:
    """The finding of one validator in one image, in texts that any terminal can show."""

    id: str  # "nccl.single"
    title: str  # what holds when it passes: "one libnccl is in the image"
    tier: Tier
    severity: Severity
    outcome: Outcome
    expected: str = ""
    actual: str = ""
    fix: str = ""  # what to do, where it failed
    reason: str = ""  # why it was skipped or not measured
    source: str = ""  # where the rule is from
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Make the texts plain."""
        for name in ("title", "expected", "actual", "fix", "reason"):
            object.__setattr__(self, name, plain(getattr(self, name)))
