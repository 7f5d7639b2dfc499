"""What an image with NCCL, which is meant for no fabric, does on EFA or eRDMA."""

import pytest

from rdma_images.chain.links import EFA_PLUGINS
from rdma_images.chain.verbs import opened_providers
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.applies import for_no_fabric
from validators.support.in_use import loads_nccl

# The plugins that bring NCCL to a fabric. NCCL reaches eRDMA without one; those of verbs do not take it away.
FABRIC_PLUGINS = {"efa": EFA_PLUGINS, "erdma": ("nccl-rdma-sharp-plugins", "uccl-rdma")}
FALLBACK_SOURCE = (
    "NVIDIA/nccl src/transport/net_socket.cc: what is left where no plugin and no verbs provider knows the fabric"
)
NO_FABRIC = "none"  # what the label of the fabric says of an image for InfiniBand, or for one node


def is_for_any_network(inspection: Inspection) -> bool:
    """Return whether an image loads NCCL, is for no fabric, and does not say that it is for none."""
    return inspection.subject.label("fabric") != NO_FABRIC and for_no_fabric(loads_nccl)(inspection)


@pytest.mark.validator("nccl.fabric", source=FALLBACK_SOURCE, severity="note", when=is_for_any_network)
def test_fabric(files: Files, libraries: Libraries, require: Requirement) -> None:
    """An image with NCCL has what brings it to EFA or to eRDMA, or says that it is for neither."""
    fitting = next(
        (path for path, library in libraries.plugins.items() if library.project in FABRIC_PLUGINS["efa"]), None
    )
    drivers = set(opened_providers(files, libraries).values())
    if drivers & {"mlx5", "irdma", "bnxt_re"}:
        pytest.skip("the image has what InfiniBand or RoCE needs: see verbs.usable")
    erdma = "erdma" in drivers
    lacks, instances = ("", "EFA") if erdma else (" and no liberdma for eRDMA", "EFA or eRDMA")
    alternative = "the label of an image for eRDMA" if erdma else "rdma-core with eRDMA's provider"
    require(
        fitting is not None,
        expected=f"aws-ofi-nccl with libfabric for EFA, or {alternative}: without them NCCL takes TCP",
        actual=fitting or f"no libnccl-net.so for EFA{lacks}: on instances with {instances} NCCL uses TCP sockets",
        fix="run the EFA installer, or install Alibaba's packages for eRDMA; InfiniBand and one node need nothing",
    )
