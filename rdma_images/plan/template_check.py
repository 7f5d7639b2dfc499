"""Check that the template of a target exists, before a plan is shown or built."""

from rdma_images.core import paths
from rdma_images.core.errors import suggestion
from rdma_images.core.image import Image

ONTO_PREFIX = "onto"  # how the names of templates begin that are for --onto


def template_problem(image: Image) -> str | None:
    """Return an error for a missing template; None if it exists. Its content is checked when it is rendered."""
    path = paths.find_data(f"dockerfiles/targets/{image.template}.j2")
    if path.is_file():
        return None
    templates = {file.stem for folder in paths.data_folders("dockerfiles") for file in folder.glob("targets/*.j2")}
    names = sorted(name for name in templates if not name.startswith(ONTO_PREFIX))
    fix = f"write it, or correct `template`: {suggestion(image.template, names)}"
    return f"{path}: no such template, for target {image.target}\n{fix}"
