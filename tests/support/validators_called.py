"""What validators say of an inspection: all of them, or one that is called by itself."""

from typing import Any

from rdma_images.core.check import Check
from rdma_images.inspection.inspection import Inspection
from rdma_images.validate import suite
from rdma_images.validate.validator import Requirement


def checks_by_id(inspection: Inspection, *tiers: str) -> dict[str, Check]:
    """Return the checks of `tiers`, static where none is named, by id."""
    return {check.id: check for check in suite.run(inspection, tiers or ("static",))}


def passed(validator: Any, *arguments: Any) -> str:
    """Return what a validator finds where it passes."""
    require = Requirement()
    validator(*arguments, require)
    return require.actual
