"""The checks of this tier as the report takes them."""

from dataclasses import dataclass, replace

from rdma_images.core.pipeline import Check


@dataclass(frozen=True)
class Subject:
    """What a check is about, whatever its outcome."""

    id: str  # without the tier: "rc-pingpong"
    title: str  # what holds when it passes
    expected: str
    fix: str = ""
    source: str = ""


def passed(subject: Subject, found: str) -> Check:
    """The check passed, and this shows it."""
    return replace(_not_tried(subject), outcome="passed", found=found)


def failed(subject: Subject, found: str) -> Check:
    """The check failed: what was found instead."""
    return replace(_not_tried(subject), outcome="failed", found=found, fix=subject.fix)


def skipped(subject: Subject, reason: str) -> Check:
    """The check was skipped, and why."""
    return replace(_not_tried(subject), reason=reason)


def _not_tried(subject: Subject) -> Check:
    return Check(
        id=f"datapath.{subject.id}",
        title=subject.title,
        tier="datapath",
        severity="error",
        outcome="skipped",
        expected=subject.expected,
        source=subject.source,
    )
