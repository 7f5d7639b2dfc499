"""The environment that NCCL has in a process of the image, and the names of plugins that it then tries."""

from collections.abc import Mapping

from rdma_images.core import versions
from rdma_images.inspection.inspection import Inspection

DEFAULT_PLUGIN = "libnccl-net.so"
DEFAULT_VERSION = "2.30.7"  # whose rule is taken for an NCCL that names no version
# NVIDIA/nccl src/net.cc of 2.18.5 to 2.20.3, which put every name between "libnccl-net-" and ".so"; of 2.20.5 to
# 2.26.6, which try the name itself first; src/plugin/net.cc and plugin_open.cc of 2.27.3 and of 2.27.5 to 2.30.7.
NAME_FIRST_SINCE, LISTS_SINCE, PATHS_SINCE, NONE_SINCE = "2.20.5", "2.27.3", "2.27.5", "2.28.3"


def started_environment(inspection: Inspection) -> dict[str, str]:
    """Return the environment of a process that the entry point starts, as far as it is known."""
    entry, image_environment = inspection.measured.entry, inspection.subject.environment
    if not entry:
        return dict(image_environment)
    return {**{name: value for name, value in image_environment.items() if name not in entry.removed}, **entry.given}


def nccl_environment(inspection: Inspection) -> dict[str, str]:
    """Return `started_environment` with what NCCL's configuration files add.

    A variable that is set wins, then the user's file.
    """
    environment = started_environment(inspection)
    assigned = inspection.measured.settings.assigned if inspection.measured.settings else []
    lines = [setting for setting in assigned if setting.reader == "nccl"]
    for setting in sorted(lines, key=lambda setting: setting.file == "/etc/nccl.conf"):
        environment.setdefault(setting.name, setting.value)
    return environment


def plugin_names(version: str, environment: Mapping[str, str]) -> list[str]:
    """Return the file names that an NCCL version tries for a network plugin, in its order."""
    value = environment.get("NCCL_NET_PLUGIN", "")
    if not versions.at_least(version, LISTS_SINCE):
        if not value:
            return [DEFAULT_PLUGIN]
        return ([value] if versions.at_least(version, NAME_FIRST_SINCE) else []) + [f"libnccl-net-{value}.so"]
    if "NCCL_NET_PLUGIN" not in environment:
        return [DEFAULT_PLUGIN]
    if value.lower() == "none" and versions.at_least(version, NONE_SINCE):
        return []
    words = [word for word in value.split(",") if word]
    return [name for word in words for name in _file_names(word, versions.at_least(version, PATHS_SINCE))]


def _file_names(word: str, paths: bool) -> list[str]:
    """Return the file names that NCCL tries for a word of the list.

    `paths`: it accepts paths, as from 2.27.5 on.
    """
    is_library = word.startswith("lib") and word.endswith(".so")
    if is_library or (paths and "/" in word):
        return [word]
    template = f"libnccl-net-{word}.so"
    return [word, template] if paths else [template]
