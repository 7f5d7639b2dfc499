"""Checks of images with an NCCL, and of those for a fabric, which need one."""

from rdma_images.inspection.inspection import Inspection
from validators.support.applies import for_fabric, with_component


def reason(inspection: Inspection) -> str:
    """Return why an image gets these checks; "" where it does not."""
    tree = inspection.measured.tree
    paths = sorted(tree.libraries.nccl) if tree else []
    return (
        for_fabric("efa", "erdma")(inspection)
        or with_component(inspection, "nccl")
        or (f"it has {paths[0]}" if paths else "")
    )
