"""The plugins that NCCL opens are ones that know the fabric."""

import pytest

from rdma_images.chain.links import EFA_PLUGINS
from rdma_images.core.image import FABRIC_TITLES
from rdma_images.inspection.inspection import Inspection, InstalledNccl
from rdma_images.inspection.measurements import Libraries
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.broken_files import broken
from validators.support.network_plugin import found_plugin

PROJECT_SOURCE = "the names and first lines of log in the plugins' own sources, see probes/libraries.py"
# The plugins that bring NCCL to a fabric. NCCL reaches eRDMA without one; those of verbs do not take it away.
FABRIC_PLUGINS = {"efa": EFA_PLUGINS, "erdma": ("nccl-rdma-sharp-plugins", "uccl-rdma")}
DEFAULT_NAME_SOURCE = (
    "NVIDIA/nccl src/plugin/plugin_open.cc: the default names; issues 1992 and 2112: a profiler that ends training"
)
DEFAULT_NAMES = {"NCCL_TUNER_PLUGIN": "libnccl-tuner.so", "NCCL_PROFILER_PLUGIN": "libnccl-profiler.so"}


@pytest.mark.validator("plugin.project", source=PROJECT_SOURCE)
def test_project(
    inspection: Inspection, fabric: str, libraries: Libraries, nccl: InstalledNccl, require: Requirement
) -> None:
    """The plugin that NCCL opens is one that knows the fabric: the name libnccl-net.so is everybody's."""
    path, library = found_plugin(inspection, libraries, nccl)
    environment = inspection.subject.environment
    if fabric == "erdma" and environment.get("NCCL_NET", "").upper() == "IB":
        pytest.skip("NCCL_NET=IB: NCCL uses its own, whatever plugin it opens")
    stranger = fabric == "efa" and not any(name.startswith("libfabric.so") for name in library.needed)
    is_path = any("/" in word for word in environment.get("NCCL_NET_PLUGIN", "").split(","))
    if not library.project and (not stranger or library.error or is_path):
        pytest.skip(f"{path} does not say whose plugin it is")
    actual = f"{path}, which NCCL opens, is {library.project}"
    if library.project not in FABRIC_PLUGINS[fabric]:
        actual += f", which does not know {FABRIC_TITLES[fabric]}"
    if not library.project:
        actual = f"{path}, which NCCL opens, asks for no libfabric: it cannot reach EFA"
    require(
        library.project in FABRIC_PLUGINS[fabric],
        expected=f"{' or '.join(FABRIC_PLUGINS[fabric])}" if fabric == "efa" else "no plugin that takes NCCL off eRDMA",
        actual=actual,
        fix=f"remove {path}, put the folder of aws-ofi-nccl before its own, or set NCCL_NET_PLUGIN=ofi"
        if fabric == "efa"
        else f"remove {path}, or set NCCL_NET_PLUGIN=none: NCCL {nccl.version} reaches eRDMA by itself",
    )


@pytest.mark.validator("plugin.others", source=DEFAULT_NAME_SOURCE, severity="warning")
def test_others(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """NCCL opens no tuner or profiler by its default name but aws-ofi-nccl's own."""
    environment = inspection.subject.environment
    unasked = [name for variable, name in DEFAULT_NAMES.items() if not environment.get(variable)]
    answers = {name: libraries.resolved[name].file for name in unasked if name in libraries.resolved}
    ofi_plugins = [path for path, library in libraries.plugins.items() if library.project == "aws-ofi-nccl"]
    strangers = [file for file in answers.values() if file and file not in ofi_plugins and not broken(inspection, file)]
    require(
        not strangers,
        expected="the plugin's own tuner, and no profiler that nobody asked for",
        actual="; ".join(
            f"NCCL opens {file} without being asked, by its name: it is not aws-ofi-nccl's, and may fail"
            for file in strangers
        )
        or "no other",
        fix=f"remove {', '.join(strangers)}, or give it a name of its own, which the job that wants it says in "
        "NCCL_TUNER_PLUGIN or NCCL_PROFILER_PLUGIN",
    )
