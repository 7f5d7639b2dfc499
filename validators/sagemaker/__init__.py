"""Checks of images for SageMaker."""

from rdma_images.inspection.inspection import Inspection


def reason(inspection: Inspection) -> str:
    """Return why an image gets these checks; "" where it does not."""
    target = inspection.expected.target or inspection.subject.label("target") or ""
    return f"its target is {target}" if target.startswith("sagemaker-") else ""
