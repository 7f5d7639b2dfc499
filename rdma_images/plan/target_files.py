"""Check that the template and the files of a target exist, before a plan is shown or built."""

from pathlib import Path, PurePosixPath

from rdma_images.core import paths
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import AddedFile, Image

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


def file_problem(image: Image) -> str | None:
    """Return which of an image's files is not there or cannot be taken; None where all are, without reading them."""
    try:
        for entry in image.additions.files if image.additions else ():
            find_file(entry)
    except RefusedError as error:
        return f"target {image.target}: {error}"
    return None


def find_file(entry: AddedFile) -> Path:
    """Return the file or folder of an entry. Raises RefusedError where it is not there, or behind a symbolic link."""
    root = paths.PROJECT / entry.path
    if not root.is_symlink() and not root.exists():
        raise RefusedError(f"{root}: no such file or folder\ncorrect `files` of matrix.yaml, or write it")
    if entry.path != "." and root.parent.resolve() != paths.PROJECT.resolve() / PurePosixPath(entry.path).parent:
        raise RefusedError(
            f"{entry.path} of `files` leads over a symbolic link, which a build does not follow\n"
            f"write the path that it leads to, where that is in {paths.PROJECT}"
        )
    return root
