"""The libraries of an image that open a network without NCCL, and what facts/packages/ says of them."""

import functools
import re

from rdma_images.components import package
from rdma_images.facts import Facts
from rdma_images.inspection.inspection import Inspection, base_name
from rdma_images.inspection.measurements import Files
from rdma_images.validate.probes.libraries import TRANSPORT
from rdma_images.validate.probes.tree import EXTENSION

NVSHMEM_LIBFABRIC = "nvshmem_transport_libfabric"  # torch's wheels bring it, whatever the network
NVSHMEM_UCX = "nvshmem_transport_ucx"  # which takes the loader's UCX, where there is one
UCX_MLX5 = "libuct_ib_mlx5"  # UCX's modules for hardware that is on neither fabric
PACKAGES_PATH = "-packages/"  # in the path of what pip or apt has installed for Python


def transports(inspection: Inspection, files: Files) -> list[str]:
    """Return the libraries that open the image's network by themselves."""
    paths = [p for p in files.library_files if TRANSPORT.fullmatch(base_name(p)) or EXTENSION.fullmatch(p)]
    unlinked = [path for path in paths if not files.library_files[path].target]
    idle = (
        *(() if inspection.expected.fabric == "efa" else (NVSHMEM_LIBFABRIC,)),
        *((UCX_MLX5,) if inspection.expected.fabric else ()),
    )
    return [path for path in unlinked if not base_name(path).startswith((*idle, NVSHMEM_UCX))]


@functools.cache
def _tables() -> tuple[package.PackageFacts, ...]:
    facts = Facts()
    return tuple(package.package_facts(name, facts) for name in package.component_names())


def opened_libraries(path: str, fabric: str | None) -> tuple[str, ...] | None:
    """Return the libraries of `fabric` that the package of the library at `path` opens.

    None where no facts say it: of another package, or of one that does not use this fabric.
    """
    inside = path.rpartition(PACKAGES_PATH)[2]
    table = next((table for table in _tables() if table.libraries and re.match(table.libraries, inside)), None)
    uses = {str(name): use for name, use in table.fabrics.items()} if table else {}
    return uses[fabric].opens if fabric in uses else None
