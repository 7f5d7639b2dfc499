"""Checks of images with torch."""

from rdma_images.inspection.inspection import Inspection
from validators.support.applies import with_component, with_python_package
from validators.support.in_use import torch_libraries


def reason(inspection: Inspection) -> str:
    """Return why an image gets these checks; "" where it does not."""
    tree = inspection.measured.tree
    libraries = torch_libraries(tree.libraries) if tree else []
    return (
        with_component(inspection, "pytorch")
        or with_python_package(inspection, "torch")
        or (f"it has {libraries[0]}" if libraries else "")
    )
