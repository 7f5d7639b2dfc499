"""Checks of the chain from NCCL to the network: of images for a fabric, and of any with `--fabric` or `--instance`."""

from rdma_images.inspection.inspection import Inspection
from validators.support.applies import for_fabric


def reason(inspection: Inspection) -> str:
    """Return why an image gets these checks; "" where it does not."""
    requested = inspection.expected.requested_fabric
    return for_fabric("efa", "erdma")(inspection) or (f"{requested} is asked for" if requested else "")
