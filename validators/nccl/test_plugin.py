"""The network plugin in an image that is for neither fabric."""

import pytest

from rdma_images.inspection.inspection import (
    Inspection,
    InstalledNccl,
    describe_missing_libraries,
    explain_refusal,
    missing_in,
)
from rdma_images.inspection.measurements import Libraries
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.applies import for_no_fabric
from validators.support.in_use import NO_LIBRARY, closure, has_broken_file, resolved_plugin, tried_plugin_names

OPEN_SOURCE = "NVIDIA/nccl src/plugin/plugin_open.cc: dlopen with RTLD_NOW, and NCCL's own networks where that fails"


@pytest.mark.validator(
    "plugin.opens", source=OPEN_SOURCE, severity="warning", when=for_no_fabric(lambda _, libraries: libraries.plugins)
)
def test_opens(inspection: Inspection, libraries: Libraries, nccl: InstalledNccl, require: Requirement) -> None:
    """The network plugin that NCCL finds can be opened, in an image that is for neither fabric."""
    path = resolved_plugin(inspection, libraries, nccl.path) or pytest.skip("NCCL finds no network plugin")
    if has_broken_file(inspection, libraries, *tried_plugin_names(inspection, libraries, nccl.path)):
        pytest.skip(NO_LIBRARY)
    missing = missing_in(libraries, path)
    refusals = [explain_refusal(fault) for fault in closure(libraries, path).faults]
    why = f"it finds no {describe_missing_libraries(inspection, missing)}" if missing else "; ".join(refusals[:1])
    require(
        not why,
        expected="a plugin with all that it needs, or none",
        actual=f"{path} cannot be opened: {why.removeprefix(f'{path} cannot be loaded: ')}. NCCL goes on without it"
        if why
        else path,
        fix="install rdma-core (libibverbs1, ibverbs-providers) and what else the plugin needs, or remove the plugin",
    )
