"""Checks of images with GDRCopy."""

from rdma_images.inspection.inspection import Inspection
from validators.support.applies import with_component


def reason(inspection: Inspection) -> str:
    """Return why an image gets these checks; "" where it does not."""
    return with_component(inspection, "gdrcopy")
