"""Checks of what only an image has, and no machine: layers, labels, user, entry point."""

from rdma_images.inspection.inspection import Inspection


def reason(inspection: Inspection) -> str:
    """Return why an image gets these checks; "" where it does not."""
    return "it has layers and a configuration" if inspection.subject.digest else ""
