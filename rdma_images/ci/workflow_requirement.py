"""The requirement by which the workflow of a user's folder installs this tool."""

import json
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit


def workflow_requirement(root: Path) -> tuple[str, str]:
    """Return the requirement by which the workflow installs this tool, and a note about it.

    It is the version of a tool from an index, and the address and commit of a tool from an address (PEP 610). For a
    tool from this machine it is a wheel, which the user puts into the folder.
    """
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
