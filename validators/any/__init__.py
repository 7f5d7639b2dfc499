"""Checks of every image."""

from rdma_images.inspection.inspection import Inspection


def reason(_: Inspection) -> str:
    """Return why an image gets these checks."""
    return "every image"
