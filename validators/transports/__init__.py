"""Checks of images in which something opens a network beside NCCL: NIXL, UCX, NVSHMEM, Mooncake and their like."""

from rdma_images.inspection.inspection import Inspection, base_name
from rdma_images.validate.probes.libraries import TRANSPORT
from rdma_images.validate.probes.tree import EXTENSION

PARTS = ("libuct", "libplugin_UCX")  # of a UCX or NIXL that may lack what opens a network


def reason(inspection: Inspection) -> str:
    """Return why an image gets these checks; "" where it does not."""
    tree = inspection.measured.tree
    files = sorted(tree.files.library_files) if tree else []
    transports = (path for path in files if TRANSPORT.fullmatch(base_name(path)) or EXTENSION.fullmatch(path))
    path = next(transports, "") or next((path for path in files if base_name(path).startswith(PARTS)), "")
    return f"it has {path}" if path else ""
