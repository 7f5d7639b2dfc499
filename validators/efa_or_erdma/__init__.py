"""Checks of images for a fabric, EFA or eRDMA."""

from rdma_images.inspection.inspection import Inspection
from validators.support.applies import for_fabric


def reason(inspection: Inspection) -> str:
    """Return why an image gets these checks; "" where it does not."""
    return for_fabric(inspection, "efa", "erdma")
