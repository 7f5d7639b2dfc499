"""The task of the installed tool that starts a folder: init."""

import json
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

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

    from rdma_images.maintain import schemas

    root = files.expand_user(folder).absolute()
    if existing := [name for name in WRITTEN if files.exists(root / name)]:
        raise RefusedError(f"{root}: already has {', '.join(existing)}\nname an empty folder with --folder")
    requirement, note = _requirement(root)
    for name, source in WRITTEN.items():
        text = (packaged("rdma_images.cli") / "start" / source).read_text(encoding="utf-8")
        atomic.write(root / name, text.replace("REQUIREMENT", requirement))
    show(*(str(root / name) for name in WRITTEN), *(str(path) for path in schemas.write(root)))
    change = "" if root == Path.cwd() else f"cd {root} && "
    show(note, f"next: {change}{paths.COMMAND} build --target my-training --rehearse")


def _requirement(root: Path) -> tuple[str, str]:
    """Return the requirement by which the workflow installs this tool, and a note about it.

    It is the version of a tool from an index, and the address and commit of a tool from an address (PEP 610). For a
    tool from this machine it is a wheel, which the user puts into the folder.
    """
    from importlib.metadata import distribution

    installed = distribution("rdma-images")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    address, vcs = str(origin.get("url", "")), origin.get("vcs_info")
    if not address.startswith("file:"):
        exact = f"{vcs['vcs']}+{address}@{vcs['commit_id']}" if vcs else address
        requirement = f"'rdma-images @ {exact}'" if exact else f"rdma-images=={installed.version}"
        return requirement, f"the workflow installs {exact or requirement}, as installed here"
    path, name = unquote(urlsplit(address).path), f"rdma_images-{installed.version}-py3-none-any.whl"
    return f"./{name}", (
        f"the workflow cannot install rdma-images: it was installed from {path}, which no workflow reaches\n"
        f"get the wheel with `pip wheel --no-deps --wheel-dir {root} {path}` and commit it"
    )
