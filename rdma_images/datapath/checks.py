"""Make the checks of this tier in the report's form."""

from dataclasses import dataclass, replace

from rdma_images.core.pipeline import Check


@dataclass(frozen=True)
class CheckSubject:
    """The subject of a check, whatever its outcome."""

    id: str  # without the tier: "rc-pingpong"
    title: str  # what holds when it passes
    expected: str
    fix: str = ""
    source: str = ""


def passed(subject: CheckSubject, finding: str) -> Check:
    """Return a passed check with what shows it."""
    return replace(_untried(subject), outcome="passed", actual=finding)


def failed(subject: CheckSubject, finding: str) -> Check:
    """Return a failed check with what was found instead."""
    return replace(_untried(subject), outcome="failed", actual=finding, fix=subject.fix)


def skipped(subject: CheckSubject, reason: str) -> Check:
    """Return a skipped check with the reason."""
    return replace(_untried(subject), reason=reason)


def _untried(subject: CheckSubject) -> Check:
    return Check(
        id=f"datapath.{subject.id}",
        title=subject.title,
        tier="datapath",
        severity="error",
        outcome="skipped",
        expected=subject.expected,
        source=subject.source,
    )
