"""The last links: what the plugin requires beside its libraries, and what the node and the job decide."""

import re
from collections.abc import Iterator

from rdma_images.chain.nccl_environment import nccl_environment
from rdma_images.facts import facts_file
from rdma_images.facts.running import RunRequirements
from rdma_images.inspection.chain import Link
from rdma_images.inspection.inspection import Inspection, base_name
from rdma_images.inspection.measurements import Libraries, PluginFile

TOPOLOGY_VARIABLE, TOPOLOGY_SUFFIX = "NCCL_TOPO_FILE", "-topo.xml"
TOPOLOGY_FAULTS = {"absent": "is not there, and NCCL goes on without it", "no arch": "has processors without arch"}
GDRCOPY = "libgdrapi.so"  # aws/aws-ofi-nccl src/nccl_ofi_gdrcopy.cpp opens it, for GPU-initiated networking alone
NODE_SETTINGS = ("devices", "ulimits", "shm", "hugepages")


def plugin_requirements(inspection: Inspection, libraries: Libraries, file: str, instance: str) -> Link:
    """Return the link of what a plugin for EFA uses beside its libraries.

    None of it breaks the chain.

    Args:
        inspection: What was measured.
        libraries: The image's.
        file: The plugin's.
        instance: The instance type that was asked for; "" for none.
    """
    topology = _topology(inspection, libraries, libraries.plugins.get(file), instance)
    gdrcopy = libraries.resolved.get(GDRCOPY)
    path = gdrcopy.file if gdrcopy else ""
    copies = (
        f"GDRCopy {base_name(path)}" if path else f"no GDRCopy ({GDRCOPY}), which GPU-initiated networking alone needs"
    )
    return Link(name="requirements", value="; ".join(filter(None, (topology, copies))))


def _topology(inspection: Inspection, libraries: Libraries, plugin: PluginFile | None, instance: str) -> str:
    """Return which topology file NCCL gets on an instance type, and its fault.

    "" where neither is known.
    """
    environment, settings = nccl_environment(inspection), inspection.measured.settings
    if named_file := environment.get(TOPOLOGY_VARIABLE, ""):
        fault = TOPOLOGY_FAULTS["absent"] if settings and named_file in settings.absent else ""
        return f"{TOPOLOGY_VARIABLE}={named_file} {fault}".rstrip()
    files = plugin.topologies if plugin and instance else []
    file = next((file for file in files if _words(instance).startswith(_words(file))), "")
    fault = TOPOLOGY_FAULTS.get(libraries.topologies.get(file, ""), "")
    return f"topology {base_name(file)} {fault}".rstrip() if file else ""


def _words(name: str) -> str:
    """Return the name of an instance type or topology file in one form.

    That is "p4d-24xl" of p4d.24xlarge and of p4d-24xl-topo.xml.
    """
    return re.sub(r"large$", "l", base_name(name).removesuffix(TOPOLOGY_SUFFIX).replace(".", "-"))


def node_links(fabric: str) -> Iterator[Link]:
    """Yield the link of what the node and the job decide for a fabric, if any."""
    rows = facts_file.read(RunRequirements).settings.values()
    needed = [f"{row.name} {row.value}" for row in rows if row.fabric == fabric and row.name in NODE_SETTINGS]
    if needed:
        yield Link(name="node", how="facts", value=f"the node and the job decide: {', '.join(needed)}")
