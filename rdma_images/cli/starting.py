"""The task of the installed tool that starts a folder: init."""

import json
import shutil
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

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
    """Start a folder of your own: matrix.yaml, .gitignore, a workflow, schemas for editors.

    Writes nothing where one of these files exists.
    """
    from importlib.resources import files as packaged

    from rdma_images.maintain import schemas

    root = files.expanded(folder).absolute()
    if taken := [name for name in WRITTEN if files.is_there(root / name)]:
        raise RefusedError(f"{root}: already has {', '.join(taken)}\nname an empty folder with --folder")
    requirement, note = _requirement(root)
    for name, source in WRITTEN.items():
        text = (packaged("rdma_images.cli") / "start" / source).read_text(encoding="utf-8")
        atomic.write(root / name, text.replace("REQUIREMENT", requirement))
    show(*(str(root / name) for name in WRITTEN), *(str(path) for path in schemas.write(root)))
    if note:
        show(note)
    show(_next(root))


def _requirement(root: Path) -> tuple[str, str]:
    """Return what the workflow installs, which is what is installed here, and what to know of it.

    A tool from an index is its version; one from a repository that address at its commit (PEP 610); a wheel's file is
    copied into the folder.
    """
    from importlib.metadata import distribution

    installed = distribution("rdma-images")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    address = str(origin.get("url", ""))
    if commit := origin.get("vcs_info", {}).get("commit_id"):
        return f"'rdma-images @ git+{address}@{commit}'", ""
    if not address:
        return f"rdma-images=={installed.version}", ""
    wheel = Path(url2pathname(urlsplit(address).path))
    if wheel.suffix == ".whl" and wheel.is_file():
        root.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(wheel, root / wheel.name)
        return f"./{wheel.name}", f"the workflow installs {wheel.name}, which was copied here: commit it"
    return f"rdma-images=={installed.version}", (
        f"rdma-images is installed from {address}, which no workflow reaches: it installs version {installed.version} "
        "from the package index\nchange that line of .github/workflows/images.yml to where you publish the tool"
    )


def _next(root: Path) -> str:
    change = "" if root == Path.cwd() else f"cd {root} && "
    return f"next: {change}{paths.COMMAND} build --target my-training --rehearse"
