"""What a validator is made of: its mark, what it asks for by the names of its parameters, and how it leaves.

A validator is a function test_… in validators/ with the mark `validator`. Of its parameters `inspection` is the image
and what was measured in it, and `require` takes the finding. Any other is the value of the function of that name in
the validator's own module, else of the one here, else what the probe of that name has measured.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from rdma_images.core.check import Severity
from rdma_images.core.plain import plain
from rdma_images.inspection.inspection import (
    Inspection,
    InstalledNccl,
    mapped_nccl,
    nccl_in_use,
    nccl_wheels,
    preloaded_nccl,
    wheel_nccl,
)
from rdma_images.inspection.measurements import Files, Libraries

Function = TypeVar("Function", bound=Callable[..., None])


class UnmetError(AssertionError):
    """A requirement does not hold; the message has the lines expected, found and fix."""


class SkippedError(Exception):
    """A validator has nothing to judge; the message is the reason."""


class NotMeasuredError(SkippedError):
    """The clock ended what measures: nothing is known of what a validator asks for."""


@dataclass(frozen=True)
class validator:  # a decorator, which is written in lower case
    """Mark a function as the validator of a check.

    `tier` "any" comes with each tier. `when` says of an image whether the check applies: it is left out where it does
    not. `severity` is that of a finding.
    """

    id: str
    source: str
    tier: str = "static"
    severity: Severity = "error"
    when: Callable[[Inspection], Any] | None = None

    def __call__(self, function: Function) -> Function:
        """Return `function` with this mark."""
        function.mark = self  # type: ignore[attr-defined]
        return function


def skip(reason: str) -> NoReturn:
    """Leave a validator that has nothing to judge."""
    raise SkippedError(reason)


@dataclass
class Requirement:
    """The function that a validator calls once, with the expected and the actual state."""

    expected: str = ""
    actual: str = ""
    fix: str = ""
    severity: Severity | None = None

    def __call__(self, holds: bool, *, expected: str, actual: str, fix: str, severity: Severity | None = None) -> None:
        """Record the finding; raises UnmetError, which fails the check, where it does not hold.

        `severity` is the finding's where it is another than the validator's.
        """
        self.severity = severity
        self.expected, self.actual, self.fix = map(plain, (expected, actual, fix))
        if not holds:
            raise UnmetError(f"expected: {self.expected}\nfound: {self.actual}\nfix: {self.fix}")


def skip_unmeasured(inspection: Inspection, probe: str) -> NoReturn:
    """Raise SkippedError, or NotMeasuredError if `probe` timed out."""
    if probe in inspection.measured.timed_out:
        not_measured(inspection.measured.missing[probe])
    if probe in inspection.measured.failed and probe != "torch":  # torch.imports reports it
        skip(f"{probe} could not be measured: see measured.complete")
    skip(inspection.measured.missing.get(probe, f"{probe} was not measured"))


def not_measured(why: str) -> NoReturn:
    """Raise NotMeasuredError for a measurement that timed out."""
    raise NotMeasuredError(why)


def libraries(inspection: Inspection) -> Libraries:
    """Return the fabric's libraries, and what the loader makes of them."""
    return inspection.measured.tree.libraries if inspection.measured.tree else skip_unmeasured(inspection, "tree")


def files(inspection: Inspection) -> Files:
    """Return the file tree in short."""
    return inspection.measured.tree.files if inspection.measured.tree else skip_unmeasured(inspection, "tree")


def nccl(inspection: Inspection) -> InstalledNccl:
    """Return the NCCL in use, where it is the installed one; else another check reports it."""
    in_use = nccl_in_use(inspection)
    if not in_use:
        skip("the image has no NCCL")
    mapped, tree, wheels = mapped_nccl(inspection), inspection.measured.tree, nccl_wheels(inspection)
    wheel = wheel_nccl(tree.libraries) if tree else None
    if mapped and wheel and mapped.path not in (wheel, preloaded_nccl(inspection)):
        skip("another NCCL is loaded than the one installed: see nccl.loaded")
    if in_use.path == wheel and wheels and in_use.version not in wheels.values():
        skip("the installed NCCL is not the one its wheel says: see nccl.version")
    if not in_use.version:
        skip(f"{in_use.path} names no version: it may be damaged")
    return in_use


def fabric(inspection: Inspection) -> str:
    """Return the fabric that the image is meant for, in a validator of an image for a fabric."""
    return str(inspection.expected.fabric)
