"""Check that the templates of a target exist, before a plan is shown or built."""

import re

from rdma_images.core import files, paths
from rdma_images.core.errors import suggestion
from rdma_images.core.image import Image

# stages("base", "python") with nothing but names; what Jinja computes is known when it renders.
STAGES = re.compile(r"""stages\(((?:\s*(["'])[\w.-]+\2\s*,?)+\s*)\)""")
NAME = re.compile(r"[\w.-]+")
ONTO_PREFIX = "onto"  # how the names of templates begin that are for --onto


def template_problem(image: Image) -> str | None:
    """Return which template a target or stage lacks; None where all exist."""
    path = paths.find_data(f"dockerfiles/targets/{image.template}.j2")
    if not path.is_file():
        fix = f"write it, or correct `template`: {suggestion(image.template, _names('targets'))}"
        return f"{path}: no such template, for target {image.target}\n{fix}"
    for stages in STAGES.finditer(files.read_text(path)):
        for name in NAME.findall(stages[1]):
            stage = paths.find_data(f"dockerfiles/stages/{name}.j2")
            if not stage.is_file():
                fix = f"write {stage}, or correct the name: {suggestion(name, _names('stages'))}"
                return f"{path}: names the stage {name}, which has no template\n{fix}"
    return None


def _names(kind: str) -> list[str]:
    """Return the names of the templates of targets or of stages, but for those of --onto."""
    templates = {file.stem for folder in paths.data_folders("dockerfiles") for file in folder.glob(f"{kind}/*.j2")}
    return sorted(name for name in templates if not name.startswith(ONTO_PREFIX))
