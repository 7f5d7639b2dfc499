"""The task of the installed tool that starts a folder: init."""

from pathlib import Path

from invoke.context import Context

from rdma_images.cli.base import show, verb
from rdma_images.core import atomic, files, paths
from rdma_images.core.errors import RefusedError

# Name in the new folder -> name in rdma_images/cli/start/, where no file can begin with a dot or end in .yml.
WRITTEN = {
    "matrix.yaml": "matrix.yaml",
    ".gitignore": "gitignore",
    ".github/workflows/images.yml": "workflow.yaml",
}


@verb("init", "init --folder images", help={"folder": "The new folder; without it the current one."})
def init(_: Context, folder: str = ".") -> None:
    """Start a folder of your own: matrix.yaml, .gitignore, a workflow.

    Writes nothing where one of these files exists.
    """
    from importlib.metadata import version  # 0.1 s, with its reader of mail headers, that no other task needs
    from importlib.resources import files as packaged

    root = files.expanded(folder).absolute()
    if taken := [name for name in WRITTEN if files.is_there(root / name)]:
        raise RefusedError(f"{root}: already has {', '.join(taken)}\nname an empty folder with --folder")
    for name, source in WRITTEN.items():
        text = (packaged("rdma_images.cli") / "start" / source).read_text(encoding="utf-8")
        atomic.write(root / name, text.replace("VERSION", version("rdma-images")))
    show(*(str(root / name) for name in WRITTEN), _next(root))


def _next(root: Path) -> str:
    change = "" if root == Path.cwd() else f"cd {root} && "
    return f"next: {change}{paths.COMMAND} build --target my-training --rehearse"
