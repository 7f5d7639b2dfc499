"""Checks of images with nccl-tests."""

from rdma_images.inspection.inspection import Inspection
from validators.support.applies import with_component


def reason(inspection: Inspection) -> str:
    """Return why an image gets these checks; "" where it does not."""
    tree = inspection.measured.tree
    programs = sorted(tree.libraries.gpu_code) if tree else []
    label = inspection.subject.label("nccl-tests.architectures")
    return (
        with_component(inspection, "nccl-tests")
        or (f"it has {programs[0]}" if programs else "")
        or (f"its label says nccl-tests for {label}" if label else "")
    )
