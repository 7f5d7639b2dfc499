"""The last links: what the plugin requires beside its libraries, and what the node and the job decide."""

from collections.abc import Iterator

from rdma_images.facts import facts_file
from rdma_images.facts.running import RunRequirements
from rdma_images.inspection.inspection import base_name
from rdma_images.inspection.measurements import Libraries
from rdma_images.inspection.network_chain import Link

GDRCOPY = "libgdrapi.so"  # aws/aws-ofi-nccl src/nccl_ofi_gdrcopy.cpp opens it, for GPU-initiated networking alone
NODE_SETTINGS = ("devices", "ulimits", "shm", "hugepages")


def plugin_requirements(libraries: Libraries) -> Link:
    """Return the link of what a plugin for EFA uses beside its libraries. It does not break the chain."""
    gdrcopy = libraries.resolved.get(GDRCOPY)
    path = gdrcopy.file if gdrcopy else ""
    copies = (
        f"GDRCopy {base_name(path)}" if path else f"no GDRCopy ({GDRCOPY}), which GPU-initiated networking alone needs"
    )
    return Link(name="requirements", value=copies)


def node_links(fabric: str) -> Iterator[Link]:
    """Yield the link of what the node and the job decide for a fabric, if any."""
    rows = facts_file.read(RunRequirements).settings.values()
    needed = [f"{row.name} {row.value}" for row in rows if row.fabric == fabric and row.name in NODE_SETTINGS]
    if needed:
        yield Link(name="node", how="facts", value=f"the node and the job decide: {', '.join(needed)}")
