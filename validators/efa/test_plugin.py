"""The network plugin for EFA: NCCL finds, opens and understands it."""

import pytest

from rdma_images.chain.links import entry_point_choice
from rdma_images.chain.nccl_environment import DEFAULT_PLUGIN, started_environment
from rdma_images.core import versions
from rdma_images.facts import facts_file
from rdma_images.facts.aws_ofi_nccl import Plugin
from rdma_images.inspection.inspection import Inspection, InstalledNccl, base_name, explain_refusal, nccl_in_use
from rdma_images.inspection.measurements import Libraries
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.applies import in_tree
from validators.support.in_use import NO_LIBRARY, has_broken_file, resolved_plugin, tried_plugin_names
from validators.support.network_plugin import FoundPlugin, found_plugin
from validators.support.variables import component_versions, known_faults

SEARCH_SOURCE = "NVIDIA/nccl src/plugin/plugin_open.cc: the names it tries, and how NCCL_NET_PLUGIN is expanded"
SYMBOL_SOURCE = (
    "the symbols libnccl.so.2 looks for (its read-only data) and those the plugin exports (its dynamic symbols)"
)
PROJECT_SOURCE = "the names and first lines of log in the plugins' own sources, see probes/libraries.py"
EFA_FOLDER = "/opt/amazon/efa/"
PLATFORM_SOURCE = (
    "aws/aws-ofi-nccl src/platform-aws.c(pp), 1.6.0 to 1.21.1: its first message is in a plugin built with it alone"
)
TOPOLOGY_SOURCE = (
    "aws/aws-ofi-nccl src/platform-aws.c(pp): XML_DIR; NVIDIA/nccl src/graph/xml.cc; facts/aws-ofi-nccl.yaml"
)
FAULT_SOURCE = "facts/faults.yaml, each with its source"
FIRST_WITH_PLATFORMS = "1.6.0"
TUNER_IN_PLUGIN = "libnccl-ofi-tuner.so"  # before aws-ofi-nccl 1.16.0, see facts/aws-ofi-nccl.yaml, files
XML_FIX = "build the plugin with the --prefix that it is installed to, or copy its share/aws-ofi-nccl/xml there"
ARCH_FIX = (
    "install aws-ofi-nccl {before} or later, which makes the topology by itself, or give each cpu arch and vendor"
)
NET, TUNER = "ncclNetPlugin_v", "ncclTunerPlugin_v"
REOPENED_SOURCE = "NVIDIA/nccl, issue 1978, and src/plugin/net.cc of 2.27.7, 2.28.3, 2.29.7 and 2.30.3"
FORGETFUL_SINCE, REMEMBERS_SINCE = "2.28.3", "2.30.3"


@pytest.fixture
def plugin(inspection: Inspection, libraries: Libraries, nccl: InstalledNccl) -> FoundPlugin:
    """Return the plugin that the loader finds for NCCL; skips where it finds none."""
    return found_plugin(inspection, libraries, nccl)


@pytest.mark.validator("plugin.found", source=SEARCH_SOURCE)
def test_found(inspection: Inspection, libraries: Libraries, nccl: InstalledNccl, require: Requirement) -> None:
    """The loader finds a network plugin under a name that NCCL tries."""
    names = tried_plugin_names(inspection, libraries, nccl.path)
    if not names:
        pytest.skip("NCCL_NET_PLUGIN=none: see environment.harmful")
    if has_broken_file(inspection, libraries, *names):
        pytest.skip(NO_LIBRARY)
    path = resolved_plugin(inspection, libraries, nccl.path)
    if path is None and (script := entry_point_choice(inspection)):
        pytest.skip(f"{script} chooses the plugin by what it finds on a node")
    files = inspection.measured.tree.files.libraries if inspection.measured.tree else {}
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


@pytest.mark.validator("plugin.newest", source=PROJECT_SOURCE, severity="warning")
def test_newest(libraries: Libraries, plugin: FoundPlugin, require: Requirement) -> None:
    """No newer aws-ofi-nccl lies unused behind the one that NCCL opens."""
    path, library = plugin
    if not library.version:
        pytest.skip(f"{path} does not say which aws-ofi-nccl it is")
    by_path = {path: plugin_file.version for path, plugin_file in libraries.plugins.items() if plugin_file.version}
    newer = [
        f"{v} at {p}" for p, v in by_path.items() if v != library.version and versions.at_least(v, library.version)
    ]
    require(
        not newer,
        expected="the newest aws-ofi-nccl of the image",
        actual=f"{'the older ' if newer else ''}aws-ofi-nccl {library.version} at {path} comes first"
        + (f", before {', '.join(newer)}" if newer else ""),
        fix=f"remove {path}, or take its folder off LD_LIBRARY_PATH and /etc/ld.so.conf.d and run ldconfig",
    )


@pytest.mark.validator("plugin.broken", source=FAULT_SOURCE, severity="warning")
def test_broken(inspection: Inspection, plugin: FoundPlugin, nccl: InstalledNccl, require: Requirement) -> None:
    """No version of what brings NCCL to EFA is known not to work beside this NCCL, or for what uses it."""
    in_image = {**component_versions(inspection), "aws-ofi-nccl": plugin.library.version, "nccl": nccl.version}
    version_faults = known_faults(
        inspection, in_image, "aws-ofi-nccl", "efa-installer", "libfabric", "gdrcopy", "deep-ep"
    )
    version_faults.require_none(require, "versions", plugin.library.version or "this plugin")


def may_forget_plugin(inspection: Inspection) -> bool:
    """Return whether NCCL_NET_PLUGIN names the plugin, and this NCCL forgets it with its last communicator."""
    environment, nccl = started_environment(inspection), nccl_in_use(inspection)
    if not environment.get("NCCL_NET_PLUGIN") or environment.get("NCCL_NET_PLUGIN_REF_COUNT", "0") != "0":
        return False
    version = nccl.version if nccl else FORGETFUL_SINCE
    return versions.at_least(version, FORGETFUL_SINCE) and not versions.at_least(version, REMEMBERS_SINCE)


@pytest.mark.validator("plugin.reopened", source=REOPENED_SOURCE, severity="warning", when=may_forget_plugin)
def test_reopened(
    inspection: Inspection,
    libraries: Libraries,
    plugin: FoundPlugin,
    nccl: InstalledNccl,
    require: Requirement,
) -> None:
    """An NCCL that forgets NCCL_NET_PLUGIN with its last communicator finds the same plugin by the default name."""
    value = started_environment(inspection).get("NCCL_NET_PLUGIN")
    answer = libraries.resolved[DEFAULT_PLUGIN]
    by_default = answer.file if not answer.error or answer.file == plugin.path else ""
    outcome = f"takes {by_default}" if by_default else f"finds no {DEFAULT_PLUGIN}, and takes TCP"
    forgotten = f"NCCL {nccl.version} forgets NCCL_NET_PLUGIN={value} with its last communicator: the next {outcome}"
    require(
        by_default == plugin.path,
        expected=f"{plugin.path} by the name {DEFAULT_PLUGIN}, too",
        actual=f"{by_default} by both names" if by_default == plugin.path else forgotten,
        fix=f"install NCCL {REMEMBERS_SINCE} or later, give {plugin.path} the link {DEFAULT_PLUGIN} where the loader "
        "finds it first, or set NCCL_NET_PLUGIN_REF_COUNT=1",
    )


@pytest.mark.validator("plugin.platform", source=PLATFORM_SOURCE, severity="warning")
def test_platform(plugin: FoundPlugin, require: Requirement) -> None:
    """The plugin was built with the AWS platform: its tuner, its topology files, its settings by instance type."""
    path, library = plugin
    if library.aws_platform is None:
        pytest.skip(f"{path} is no aws-ofi-nccl")
    if library.version and not versions.at_least(library.version, FIRST_WITH_PLATFORMS):
        pytest.skip(f"aws-ofi-nccl {library.version} has no platforms: {FIRST_WITH_PLATFORMS} is the first that has")
    require(
        library.aws_platform,
        expected="an aws-ofi-nccl with the AWS platform",
        actual=f"{path} was built with the AWS platform"
        if library.aws_platform
        else f"{path} was built without the AWS platform: it has no tuner and no topology files",
        fix="configure aws-ofi-nccl with --enable-platform-aws, or install the EFA installer's plugin: without the "
        "platform NCCL runs on EFA with no tuner, no topology file and no settings for the instance type",
    )


@pytest.mark.validator(
    "plugin.topology",
    source=TOPOLOGY_SOURCE,
    severity="warning",
    when=in_tree(lambda _, libraries: any(plugin.topologies for plugin in libraries.plugins.values())),
)
def test_topology(inspection: Inspection, libraries: Libraries, plugin: FoundPlugin, require: Requirement) -> None:
    """The topology files that the plugin gives NCCL on some instance types are where it looks, and whole."""
    path, library = plugin
    if not library.topologies:
        pytest.skip(f"{path} names no topology file")
    if started_environment(inspection).get("NCCL_TOPO_FILE"):
        pytest.skip("NCCL_TOPO_FILE is set, and the plugin leaves it: see environment.files")
    facts = facts_file.read(Plugin)
    rows = {row.file: row for row in facts.topologies}
    absent = [file for file in library.topologies if libraries.topologies.get(file) == "absent"]
    bare = [
        file for file in library.topologies if libraries.topologies.get(file) == "no arch" and base_name(file) in rows
    ]
    wrong = {}
    if absent:
        wrong[f"{', '.join(absent)}, which {path} gives to NCCL, is not there: NCCL goes on without it"] = XML_FIX
    for row, file in ((rows[base_name(file)], file) for file in bare):
        problem = f"{file} has processors without arch: {row.why} [{facts.cite(row)}]"
        wrong[problem] = ARCH_FIX.format(before=row.before)
    require(
        not wrong,
        expected="each topology file that the plugin names, with the arch of its processors",
        actual="; ".join(wrong) or "all are there",
        fix="; ".join(wrong.values()),
    )


@pytest.mark.validator("plugin.tuner", source=SYMBOL_SOURCE, severity="warning")
def test_tuner(
    inspection: Inspection,
    libraries: Libraries,
    nccl: InstalledNccl,
    plugin: FoundPlugin,
    require: Requirement,
) -> None:
    """The plugin's tuner, where it has one, is one that this NCCL understands."""
    accepted = libraries.nccl[nccl.path].looks_for.get(TUNER, [])
    offered = plugin.library.exports.get(TUNER, [])
    named_file = _named_tuner(inspection, libraries)
    offered = libraries.plugins[named_file].exports.get(TUNER, []) if named_file else offered
    separate = [
        p for p, plugin_file in libraries.plugins.items() if set(accepted) & set(plugin_file.exports.get(TUNER, []))
    ]
    tuner = inspection.subject.environment.get("NCCL_TUNER_PLUGIN")
    bundled = [path for path in separate if base_name(path) == TUNER_IN_PLUGIN and not offered and not tuner]
    if not offered and not bundled:
        pytest.skip("the plugin exports no tuner: see plugin.platform")
    refusal = next(iter(libraries.closures[named_file].faults), "") if named_file in libraries.closures else ""
    require(
        not refusal,
        expected="a tuner that the loader opens, with every symbol bound",
        actual=f"NCCL gets no tuner by NCCL_TUNER_PLUGIN: {explain_refusal(refusal)}",
        fix="unset NCCL_TUNER_PLUGIN where the plugin has its tuner in itself, or install one that is linked whole",
    )
    require(
        not bundled,
        expected=f"NCCL_TUNER_PLUGIN={bundled[0] if bundled else ''}, as the tuner is a library of its own",
        actual=f"NCCL_TUNER_PLUGIN is not set, and NCCL does not open {', '.join(bundled)}: it does without this tuner",
        fix=f"set NCCL_TUNER_PLUGIN={bundled[0] if bundled else ''}, or install aws-ofi-nccl 1.16 or later",
    )
    takes = bool(set(accepted) & set(offered))
    require(
        takes,
        expected=f"one of v{', v'.join(map(str, accepted))}" if accepted else f"NCCL {nccl.version} looks for no tuner",
        actual=f"the tuner of {named_file or plugin.path} is v{', v'.join(map(str, offered))}: "
        f"NCCL {nccl.version} {'takes' if takes else 'does not take'} it",
        fix="install an aws-ofi-nccl that is as new as this NCCL; without its tuner NCCL picks algorithms itself",
    )


def _named_tuner(inspection: Inspection, libraries: Libraries) -> str:
    """Return the file of the tuner that NCCL_TUNER_PLUGIN names; "" for none."""
    word = started_environment(inspection).get("NCCL_TUNER_PLUGIN", "")
    names = [word, f"libnccl-tuner-{word}.so"] if word else []
    files = [libraries.resolved[name].file for name in names if name in libraries.resolved]
    return next(
        (file for file in files if file in libraries.plugins and libraries.plugins[file].exports.get(TUNER)), ""
    )


@pytest.mark.validator(
    "plugin.libfabric",
    source="the EFA installer puts its libfabric under /opt/amazon/efa; facts/aws-ofi-nccl.yaml, asks",
)
def test_libfabric(inspection: Inspection, libraries: Libraries, plugin: FoundPlugin, require: Requirement) -> None:
    """The plugin gets the libfabric that was installed for EFA, and one that is new enough for it."""
    file = libraries.closures[plugin.path].libraries.get("libfabric.so.1", "")
    facts, version = facts_file.read(Plugin), libraries.libfabric.get(file, "")
    rows = [row for row in facts.asks if plugin.library.version and row.holds(plugin.library.version)]
    row = next((row for row in rows if version and not versions.at_least(version, row.libfabric)), None)
    require(
        row is None,
        expected=f"libfabric {row.libfabric} or later" if row else "",
        actual=f"libfabric {version} at {file} is too old for aws-ofi-nccl {plugin.library.version}, which asks for "
        f"{row.libfabric} over EFA; NCCL takes TCP, or stops if NCCL_NET names the plugin [{facts.cite(row)}]"
        if row
        else "",
        fix="run a later EFA installer: with the plugin it brings the libfabric that belongs to it",
    )
    intended = [path for path in inspection.libraries_named("libfabric.so") if path.startswith(EFA_FOLDER)]
    if not intended or not file:
        pytest.skip("no libfabric is under /opt/amazon/efa" if file else "there is no libfabric: see chain.holds")
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
