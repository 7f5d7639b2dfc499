"""Compose the request to the network probe, which opens plugins as this image's NCCL would in its environment."""

import re

from rdma_images.chain.environment import nccl_environment, plugin_names
from rdma_images.chain.verbs import opened_providers
from rdma_images.inspection.inspection import Inspection, nccl_in_use

NOT_FOR_A_PROCESS = ("HOME", "TMPDIR", "PYTHONDONTWRITEBYTECODE")
VERSION = re.compile(r"\d+\.\d+\.\d+")


def network_request(case: Inspection, product: str = "") -> dict[str, object] | None:
    """Return what probes/network.py takes; None where the image has no NCCL whose version is known."""
    nccl, tree = nccl_in_use(case), case.measured.tree
    if not nccl or not tree or not VERSION.match(nccl[1]):
        return None
    environment = nccl_environment(case.subject, case.measured)
    about = tree.libraries.nccl.get(nccl[0])
    entry = case.measured.entry
    return {
        "names": plugin_names(nccl[1], environment),
        "looks_for": about.looks_for if about else {},
        "asked_by": nccl[0],
        "environment": {
            name: value
            for name, value in environment.items()
            if value != case.subject.environment.get(name) and name not in NOT_FOR_A_PROCESS
        },
        "removed": entry.removed if entry else [],
        "product": product,
        "providers": list(opened_providers(tree.files, tree.libraries)),
    }
