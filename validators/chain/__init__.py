"""Checks of the chain from NCCL to the network, for images for a fabric and for questions of `--fabric`."""

from rdma_images.inspection.inspection import Inspection
from validators.support.applies import for_fabric


def reason(inspection: Inspection) -> str:
    """Return why an image gets these checks; "" where it does not."""
    question = inspection.expected.requested_fabric
    return for_fabric(inspection, "efa", "erdma") or (f"the question is about {question}" if question else "")
