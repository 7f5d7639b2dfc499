"""The task of the installed tool that starts a folder: init."""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

from invoke.context import Context

from rdma_images.cli.output import show
from rdma_images.cli.verb import verb
from rdma_images.core import atomic, files, paths
from rdma_images.core.errors import RefusedError

# Name in the new folder -> name in rdma_images/cli/start/, where no file can begin with a dot or end in .yml.
WORKFLOW = ".github/workflows/images.yml"
WRITTEN = {
    "matrix.yaml": "matrix.yaml",
    ".gitignore": "gitignore",
    WORKFLOW: "workflow.yaml",
    ".github/requirements.txt": "requirements.txt",
}


@verb("init", "init --folder images", help={"folder": "The new folder; without it the current one."})
def init(_: Context, folder: str = ".") -> None:
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
    show(note, _next(root))


def _requirement(root: Path) -> tuple[str, str]:
    """Return what the workflow installs, which is what is installed here, and a note on it.

    A tool from an index is its version; one from an address that address, at its commit (PEP 610); a wheel's file is
    copied into the folder, and what is on this machine alone is to be put there as a wheel.
    """
    from importlib.metadata import distribution

    installed = distribution("rdma-images")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    address = str(origin.get("url", ""))
    if not address:
        exact = f"rdma-images=={installed.version}"
        return exact, f"the workflow installs {exact}, as installed here"
    vcs = origin.get("vcs_info", {})
    exact = f"{vcs['vcs']}+{address}@{vcs['commit_id']}" if vcs else address
    if not address.startswith("file:"):
        return f"'rdma-images @ {exact}'", f"the workflow installs {exact}, as installed here"
    path = Path(unquote(urlsplit(address).path))
    if path.suffix == ".whl" and path.is_file():
        with atomic.replacing(root / path.name) as copy, files.as_file_error(root / path.name):
            copy.write_bytes(path.read_bytes())
        return f"./{path.name}", f"the workflow installs {path.name}, which was copied here: commit it"
    name = f"rdma_images-{installed.version}-py3-none-any.whl"
    wheel = f"pip wheel --no-deps --wheel-dir {root} {exact if vcs else path}"
    fix = f"copy {path} into {root}" if path.suffix == ".whl" else f"run `{wheel}`"
    return f"./{name}", (
        f"the workflow cannot install rdma-images: it was installed from {path}, which no workflow reaches, and {name} "
        f"is missing here\n{fix} and commit the wheel, or change the line `pip install` of {WORKFLOW}"
    )


def _next(root: Path) -> str:
    change = "" if root == Path.cwd() else f"cd {root} && "
    return f"next: {change}{paths.COMMAND} build --target my-training --rehearse"
