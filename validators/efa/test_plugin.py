"""The network plugin for EFA: NCCL finds, opens and understands it."""

from rdma_images.chain.links import entry_point_choice
from rdma_images.chain.nccl_environment import started_environment
from rdma_images.core import versions
from rdma_images.facts import facts_file
from rdma_images.facts.fabric_software import Plugin
from rdma_images.inspection.inspection import Inspection, InstalledNccl, base_name
from rdma_images.inspection.measurements import Libraries
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.in_use import (
    NO_LIBRARY,
    FoundPlugin,
    found_plugin,
    has_broken_file,
    plugin_path,
    tried_plugin_names,
)
from validators.support.variables import FAULT_SOURCE, component_versions, known_faults

SEARCH_SOURCE = "NVIDIA/nccl src/plugin/plugin_open.cc: the names it tries, and how NCCL_NET_PLUGIN is expanded"
EFA_FOLDER = "/opt/amazon/efa/"
PLATFORM_SOURCE = (
    "aws/aws-ofi-nccl src/platform-aws.c(pp), 1.6.0 to 1.21.1: its first message is in a plugin built with it alone"
)
FIRST_WITH_PLATFORMS = "1.6.0"
NET = "ncclNetPlugin_v"


def plugin(inspection: Inspection, libraries: Libraries, nccl: InstalledNccl) -> FoundPlugin:
    """Return the plugin that the loader finds for NCCL; skips where it finds none."""
    return found_plugin(inspection, libraries, nccl)


@validator("plugin.found", source=SEARCH_SOURCE)
def test_found(inspection: Inspection, libraries: Libraries, nccl: InstalledNccl, require: Requirement) -> None:
    """The loader finds a network plugin under a name that NCCL tries."""
    names = tried_plugin_names(inspection, libraries, nccl.path)
    if not names:
        skip("NCCL_NET_PLUGIN=none: see environment.harmful")
    if has_broken_file(inspection, libraries, *names):
        skip(NO_LIBRARY)
    path = plugin_path(inspection, libraries, nccl.path)
    if path is None and (script := entry_point_choice(inspection)):
        skip(f"{script} chooses the plugin by what it finds on a node")
    files = inspection.measured.tree.files.library_files if inspection.measured.tree else {}
    unsearched = [file for file in files if base_name(file) in names]
    plugins = f"{', '.join(libraries.plugins)} is there" if libraries.plugins else "the image has no plugin"
    plugins = f"{unsearched[0]} is in a folder that is not searched" if unsearched and libraries.plugins else plugins
    variable = started_environment(inspection).get("NCCL_NET_PLUGIN")
    setting_text = f"NCCL_NET_PLUGIN={variable}: " if variable else ""
    lacking = " and no ".join(name for name in names if name != variable) or "such file"
    require(
        path is not None,
        expected=" or ".join(names),
        actual=path or f"{setting_text}NCCL finds no {lacking}, and so no EFA; {plugins}",
        fix="put the plugin's folder into /etc/ld.so.conf.d, give it the link libnccl-net.so, run ldconfig; or set "
        "NCCL_NET_PLUGIN=ofi for libnccl-net-ofi.so"
        if libraries.plugins
        else "run the EFA installer, which brings aws-ofi-nccl, or build that in the image",
    )


@validator("plugin.broken", source=FAULT_SOURCE, severity="warning")
def test_broken(inspection: Inspection, plugin: FoundPlugin, nccl: InstalledNccl, require: Requirement) -> None:
    """Plugin and libfabric are not versions known to fail with this NCCL or its users."""
    in_image = {**component_versions(inspection), "aws-ofi-nccl": plugin.library.version, "nccl": nccl.version}
    version_faults = known_faults(
        inspection, in_image, "aws-ofi-nccl", "efa-installer", "libfabric", "gdrcopy", "deep-ep"
    )
    version_faults.require_none(require, "versions", plugin.library.version or "this plugin")


@validator("plugin.platform", source=PLATFORM_SOURCE, severity="warning")
def test_platform(plugin: FoundPlugin, require: Requirement) -> None:
    """The plugin was built with the AWS platform: its tuner, its topology files, its settings by instance type."""
    path, library = plugin
    if library.aws_platform is None:
        skip(f"{path} is no aws-ofi-nccl")
    if library.version and not versions.at_least(library.version, FIRST_WITH_PLATFORMS):
        skip(f"aws-ofi-nccl {library.version} has no platforms: {FIRST_WITH_PLATFORMS} is the first that has")
    require(
        library.aws_platform,
        expected="an aws-ofi-nccl with the AWS platform",
        actual=f"{path} was built with the AWS platform"
        if library.aws_platform
        else f"{path} was built without the AWS platform: it has no tuner and no topology files",
        fix="configure aws-ofi-nccl with --enable-platform-aws, or install the EFA installer's plugin: without the "
        "platform NCCL runs on EFA with no tuner, no topology file and no settings for the instance type",
    )


@validator(
    "plugin.libfabric",
    source="the EFA installer puts its libfabric under /opt/amazon/efa; facts/aws-ofi-nccl.yaml, asks",
)
def test_libfabric(inspection: Inspection, libraries: Libraries, plugin: FoundPlugin, require: Requirement) -> None:
    """The plugin gets the libfabric that was installed for EFA, and one that is new enough for it."""
    file = libraries.closures[plugin.path].libraries.get("libfabric.so.1", "")
    facts, version = facts_file.read(Plugin), libraries.libfabric.get(file, "")
    rows = [row for row in facts.min_libfabric if plugin.library.version and row.holds(plugin.library.version)]
    row = next((row for row in rows if version and not versions.at_least(version, row.value)), None)
    require(
        row is None,
        expected=f"libfabric {row.value} or later" if row else "",
        actual=f"libfabric {version} at {file} is too old for aws-ofi-nccl {plugin.library.version}, which asks for "
        f"{row.value} over EFA; NCCL takes TCP, or stops if NCCL_NET names the plugin [{facts.cite(row)}]"
        if row
        else "",
        fix="run a later EFA installer: with the plugin it brings the libfabric that belongs to it",
    )
    intended = [path for path in inspection.libraries_named("libfabric.so") if path.startswith(EFA_FOLDER)]
    if not intended or not file:
        skip("no libfabric is under /opt/amazon/efa" if file else "there is no libfabric: see chain.holds")
    require(
        file in intended,
        expected=" or ".join(intended),
        actual=f"the plugin takes {file}"
        + (
            ""
            if file in intended
            else f", not {intended[0]} of the EFA installer: without a provider efa it leads to TCP"
        ),
        fix=f"remove {file}, or the ld.so.conf.d entry that puts it first, and run ldconfig",
        severity="warning",
    )
