"""The task of the installed tool that starts a folder: init."""

from pathlib import Path
from typing import Annotated

from rdma_images.cli.output import show
from rdma_images.cli.task import task
from rdma_images.core import atomic, files, paths
from rdma_images.core.errors import RefusedError

# Name in the new folder -> name in rdma_images/cli/start/, where no file can begin with a dot or end in .yml.
WRITTEN = {
    "matrix.yaml": "matrix.yaml",
    ".gitignore": "gitignore",
    ".github/workflows/images.yml": "workflow.yaml",
    ".github/requirements.txt": "requirements.txt",
}


@task("init", "init --folder images")
def init(folder: Annotated[str, "The new folder; by default the current one."] = ".") -> None:
    """Start a folder of your own: matrix.yaml, .gitignore, a workflow, schemas for editors.

    Writes nothing where one of these files exists.
    """
    from importlib.resources import files as packaged

    from rdma_images.ci.workflow_requirement import workflow_requirement
    from rdma_images.maintain import schemas

    root = files.expand_user(folder).absolute()
    if existing := [name for name in WRITTEN if files.exists(root / name)]:
        raise RefusedError(f"{root}: already has {', '.join(existing)}\nname an empty folder with --folder")
    requirement, note = workflow_requirement(root)
    for name, source in WRITTEN.items():
        text = (packaged("rdma_images.cli") / "start" / source).read_text(encoding="utf-8")
        atomic.write(root / name, text.replace("REQUIREMENT", requirement))
    show(*(str(root / name) for name in WRITTEN), *(str(path) for path in schemas.write(root)))
    change = "" if root == Path.cwd() else f"cd {root} && "
    show(note, f"next: {change}{paths.COMMAND} build --target my-training --rehearse")
