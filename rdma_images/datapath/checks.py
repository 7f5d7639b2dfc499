"""Make the checks of this tier, also those for hardware that it has not, and say in a sentence what they validate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rdma_images.core.check import Check
from rdma_images.core.image import Fabric


@dataclass(frozen=True)
class CheckDefinition:
    """The subject of a check, whatever its outcome."""

    id: str  # without the tier: "rc-pingpong"
    title: str  # what holds when it passes
    expected: str
    fix: str = ""
    source: str = ""


def pass_check(subject: CheckDefinition, finding: str) -> Check:
    """Return a passed check with what shows it."""
    return replace(_untried(subject), outcome="passed", actual=finding)


def fail_check(subject: CheckDefinition, finding: str) -> Check:
    """Return a failed check with what was found instead."""
    return replace(_untried(subject), outcome="failed", actual=finding, fix=subject.fix)


def skip_check(subject: CheckDefinition, reason: str) -> Check:
    """Return a skipped check with the reason."""
    return replace(_untried(subject), reason=reason)


def _untried(subject: CheckDefinition) -> Check:
    return Check(
        id=f"datapath.{subject.id}",
        title=subject.title,
        tier="datapath",
        severity="error",
        outcome="skipped",
        expected=subject.expected,
        source=subject.source,
    )


_HARDWARE_ONLY = {
    "efa": (
        CheckDefinition("efa-srd", "Messages travel over EFA's SRD", "an instance with EFA"),
        "no emulator has EFA's adapter and its SRD protocol",
    ),
    "erdma": (
        CheckDefinition("erdma-provider", "Messages travel through eRDMA's own provider", "an instance with eRDMA"),
        "no emulator has Alibaba's adapter, which its provider drives",
    ),
}
_GPUDIRECT = (
    CheckDefinition("gpudirect", "The adapter reads and writes a GPU's memory", "an instance with GPUs"),
    "the emulated machines have no GPU",
)

# What each check adds to the sentence when it passed.
_VALIDATES = {
    "datapath.providers": "providers load",
    "datapath.device": "a device opens",
    "datapath.rc-pingpong": "memory is registered and messages are sent and received over RC",
    "datapath.rdma-cm": "RDMA-CM connects, memory is read and written remotely",
    "datapath.perftest": "perftest writes",
    "datapath.libfabric-msg": "libfabric's MSG endpoints work over verbs",
    "datapath.libfabric-rdm": "libfabric's RDM endpoints work over verbs",
    "datapath.mpi": "two MPI ranks talk over them",
}


def hardware_checks(fabric: Fabric | None) -> tuple[Check, ...]:
    """Return the skipped checks that need the fabric's real hardware, with the reason.

    Those of both fabrics where it is not known.
    """
    fabric_checks = [_HARDWARE_ONLY[name] for name in ("efa", "erdma") if fabric in (name, None)]
    return tuple(skip_check(subject, reason) for subject, reason in (*fabric_checks, _GPUDIRECT))


def coverage(checks: Sequence[Check]) -> str:
    """Return in sentences what this tier's checks validate, and what not; "" for none.

    No figure of speed is in it, nor in any check: all of it is emulated.
    """
    datapath_checks = [check for check in checks if check.tier == "datapath"]
    if not datapath_checks:
        return ""
    validated = [
        _VALIDATES[check.id] for check in datapath_checks if check.outcome == "passed" and check.id in _VALIDATES
    ]
    failed_titles = [_inside(check.title) for check in datapath_checks if check.outcome == "failed"]
    untried = [_inside(check.title) for check in datapath_checks if check.outcome == "skipped"]
    parts = [f"Validated with the image's own libraries on an emulated adapter: {'; '.join(validated) or 'nothing'}."]
    if failed_titles:
        parts.append(f"Failed: {'; '.join(failed_titles)}.")
    if untried:
        parts.append(f"Not validated: {'; '.join(untried)}.")
    return " ".join(parts)


def _inside(title: str) -> str:
    """Return a title as part of a sentence."""
    return title[0].lower() + title[1:]
