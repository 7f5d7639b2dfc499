"""The base class of measurements, and the declaration of a probe."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rdma_images.core.check import Tier

Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class Probe:
    """The tiers that need a probe, and the reason why it may have no value though nothing is wrong."""

    def __init__(self, *tiers: Tier, nothing: str = "") -> None:
        """Describe a probe of `tiers`; without `nothing`, a probe without a value has failed."""
        self.tiers, self.nothing = tiers, nothing


class MeasuredValue(BaseModel):
    """Base of everything measured. Frozen; keys that a newer probe adds are left out."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,
        defer_build=True,  # until a report is read: most of what is measured is a part of something else
    )


class ToolRun(MeasuredValue):
    """One command; `path` is "" for no such tool, `exit_code` None where it did not end."""

    path: str
    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    seconds: float
