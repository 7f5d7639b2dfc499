"""What a plan says: the images, and the combinations that are refused, with their reasons."""

from dataclasses import dataclass, field

from rdma_images.core.image import Image


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a combination breaks."""

    rule: str  # id, "nccl-on-erdma"
    versions: dict[str, str]  # the versions the rule relates, by component
    reason: str
    source: str
    missing_component: str = ""  # the component that would have to be added; empty where none


@dataclass(frozen=True)
class Refusal:
    """A combination that cannot work, why, and the nearest one that does."""

    target: str
    axes: dict[str, str]
    broken: tuple[BrokenRule, ...]
    nearest: dict[str, str] | None = None  # axis -> value to change; None where no change of two axes helps
    # Requested axes that the target does not have, with values.
    dropped_axes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The answer to "what would be built"."""

    images: tuple[Image, ...]
    refusals: tuple[Refusal, ...] = ()
    unmeasured: tuple[str, ...] = ()  # targets left out: the image that they are added to was not measured
