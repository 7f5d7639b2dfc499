"""Whether the templates that images name are there: asked when a plan is shown, and before a build."""

from rdma_images.core import paths
from rdma_images.core.errors import near
from rdma_images.core.pipeline import Image


def template_problem(image: Image) -> str | None:
    """Return why there is no template for an image's target, None where there is one."""
    path = paths.find(f"dockerfiles/targets/{image.template}.j2")
    if path.is_file():
        return None
    targets = sorted(file.stem for folder in paths.places("dockerfiles") for file in folder.glob("targets/*.j2"))
    fix = f"write it, or correct `template`: {near(image.template, targets)}"
    return f"{path}: no such template, for target {image.target}\n{fix}"
