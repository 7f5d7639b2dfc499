"""Checks of images with torch."""

from rdma_images.inspection.inspection import Inspection
from rdma_images.validate.check_folders import with_component, with_library, with_python_package


def reason(inspection: Inspection) -> str:
    """Return why an image gets these checks; "" where it does not."""
    return (
        with_component(inspection, "pytorch")
        or with_python_package(inspection, "torch")
        or with_library(inspection, "libtorch_")
    )
