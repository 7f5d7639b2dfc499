"""The validators of an image: which it gets, and what they say of what was measured in it."""

import functools
import hashlib
import inspect
import time
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, NamedTuple, cast

from rdma_images.core.check import Check, Outcome, Tier
from rdma_images.core.image import Image
from rdma_images.core.paths import PACKAGE, VALIDATORS, data_folders
from rdma_images.inspection.inspection import Inspection
from rdma_images.validate import check_folders, validator
from rdma_images.validate.check_folders import ListedCheck
from rdma_images.validate.validator import NotMeasuredError, Requirement, SkippedError, UnmetError, skip_unmeasured

INPUTS = (".py", ".yaml", "")  # endings of files; a guest's scripts have none
# The packages that decide a result beside validators/ and facts/: what measures, and what validators import.
DECIDING = ("chain", "components", "core", "datapath", "facts", "inspection", "nccl_logs", "preflight", "validate")


@functools.cache
def digest() -> str:
    """Return the digest of the validators, the facts and the code that decide a result beside the image."""
    hasher, packages = hashlib.sha256(), [PACKAGE / name for name in DECIDING]
    for folder in (*packages, *data_folders("validators"), *data_folders("facts")):
        for path in sorted(path for path in folder.rglob("*") if path.suffix in INPUTS and path.is_file()):
            hasher.update(str(path.relative_to(folder.parent)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"sha256:{hasher.hexdigest()}"


class SuiteEntry(NamedTuple):
    """A validator, and the folder of validators/ that it lies in."""

    folder: str
    module: ModuleType
    function: Callable[..., None]
    mark: validator.validator

    @property
    def title(self) -> str:
        """Return what must hold."""
        return str(self.function.__doc__).strip().splitlines()[0].rstrip(".")


def run(
    inspection: Inspection, tiers: tuple[str, ...] = ("static",), only: Collection[str] | None = None
) -> tuple[Check, ...]:
    """Return what the validators of `tiers` say that the image gets; where `only` is given, those of these ids."""
    reasons = check_folders.folder_reasons({row.folder for row in validators()}, inspection)
    return tuple(
        _check(row, inspection, tiers)
        for row in validators()
        if row.folder in reasons and (only is None or row.mark.id in only) and _applies(row.mark, tiers, inspection)
    )


def list_checks(image: Image, tiers: tuple[str, ...]) -> tuple[ListedCheck, ...]:
    """Return the checks of `tiers` that a planned image gets; none of them is run."""
    inspection = check_folders.planned_inspection(image)
    reasons = check_folders.folder_reasons({row.folder for row in validators()}, inspection)
    return tuple(
        ListedCheck(row.folder, reasons[row.folder], row.mark.id, row.title, row.mark.tier, row.mark.severity)
        for row in validators()
        if row.folder in reasons and _applies(row.mark, tiers, inspection)
    )


@functools.cache
def validators() -> tuple[SuiteEntry, ...]:
    """Return all validators, in the order of their files and of their places in them."""
    rows = []
    for path in sorted(VALIDATORS.glob("*/test_*.py")):
        folder = path.parent.name
        module = check_folders.import_folder(f"{folder}.{path.stem}")
        for function in list(vars(module).values()):
            if isinstance(mark := getattr(function, "mark", None), validator.validator):
                rows.append(SuiteEntry(folder, module, function, mark))
    return tuple(rows)


def _applies(mark: validator.validator, tiers: tuple[str, ...], inspection: Inspection) -> bool:
    return mark.tier in (*tiers, "any") and (mark.when is None or bool(mark.when(inspection)))


def _check(row: SuiteEntry, inspection: Inspection, tiers: tuple[str, ...]) -> Check:
    """Return what a validator says; one of any tier is of the first asked for."""
    started, require, reason = time.monotonic(), Requirement(), ""
    outcome: Outcome = "passed"
    try:
        row.function(**_arguments(row, row.function, {"inspection": inspection, "require": require}))
    except SkippedError as skipped:
        reason = str(skipped)
        outcome = "not measured" if _is_timed_out(skipped, inspection, reason) else "skipped"
    except UnmetError:
        outcome = "failed"
    except Exception as error:
        outcome, require.actual = "failed", f"the validator itself failed: {type(error).__name__}: {error}"
        require.fix = "report this as a defect, with report.json"
    return Check(
        id=row.mark.id,
        title=row.title,
        tier=cast(Tier, tiers[0] if row.mark.tier == "any" else row.mark.tier),
        severity=require.severity or row.mark.severity,
        outcome=outcome,
        expected=require.expected,
        actual=require.actual,
        fix=require.fix if outcome == "failed" else "",
        reason=reason,
        source=row.mark.source,
        seconds=round(time.monotonic() - started, 4),
    )


def _arguments(row: SuiteEntry, function: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return a function's arguments by the names of its parameters; each value is made once, and added to `values`."""
    for name in inspect.signature(function).parameters:
        if name not in values:
            values[name] = _value(row, name, values)
    return {name: values[name] for name in inspect.signature(function).parameters}


def _value(row: SuiteEntry, name: str, values: dict[str, Any]) -> Any:
    """Return what `name` returns, of the validator's module or of `validator`, else what the probe `name` has."""
    for module in (row.module, validator):
        if callable(source := getattr(module, name, None)):  # an imported module may have a probe's name
            return source(**_arguments(row, source, values))
    inspection: Inspection = values["inspection"]
    return getattr(inspection.measured, name) or skip_unmeasured(inspection, name)


def _is_timed_out(skipped: SkippedError, inspection: Inspection, reason: str) -> bool:
    """Return whether a validator was skipped for want of a probe that timed out."""
    measured = inspection.measured
    return isinstance(skipped, NotMeasuredError) or any(measured.missing[name] in reason for name in measured.timed_out)
