"""The network plugin that the loader finds for NCCL."""

from typing import NamedTuple

import pytest

from rdma_images.inspection.inspection import Inspection, InstalledNccl
from rdma_images.inspection.measurements import Libraries, PluginFile
from validators.support.in_use import NO_LIBRARY, has_broken_file, resolved_plugin, tried_plugin_names


class FoundPlugin(NamedTuple):
    """The network plugin that the loader finds for NCCL, and what was read of it."""

    path: str
    library: PluginFile


def found_plugin(inspection: Inspection, libraries: Libraries, nccl: InstalledNccl) -> FoundPlugin:
    """Return the plugin that the loader finds for NCCL; skips where it finds none."""
    if has_broken_file(inspection, libraries, *tried_plugin_names(inspection, libraries, nccl.path)):
        pytest.skip(NO_LIBRARY)
    path = resolved_plugin(inspection, libraries, nccl.path)
    if not path or path not in libraries.plugins:
        pytest.skip("NCCL finds no network plugin: see plugin.found")
    return FoundPlugin(path, libraries.plugins[path])
