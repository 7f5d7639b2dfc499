"""Validators of the network plugin: NCCL finds, opens and understands it."""

from typing import NamedTuple

import pytest

from rdma_images.chain.links import EFA_PLUGINS, entry_point_choice
from rdma_images.chain.nccl_environment import DEFAULT_PLUGIN, started_environment
from rdma_images.chain.verbs import opened_providers
from rdma_images.core import versions
from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts import facts_file
from rdma_images.facts.aws_ofi_nccl import Plugin
from rdma_images.inspection.inspection import (
    Inspection,
    InstalledNccl,
    base_name,
    describe_missing_libraries,
    explain_refusal,
    missing_in,
)
from rdma_images.inspection.measurements import Files, Libraries, PluginFile
from rdma_images.validate.pytest_plugin import Requirement
from validators.conditions import broken
from validators.in_use import NO_LIBRARY, closure, has_broken_file, loads_nccl, resolved_plugin, tried_plugin_names
from validators.settings import component_versions, known_faults

SEARCH_SOURCE = "NVIDIA/nccl src/plugin/plugin_open.cc: the names it tries, and how NCCL_NET_PLUGIN is expanded"
SYMBOL_SOURCE = (
    "the symbols libnccl.so.2 looks for (its read-only data) and those the plugin exports (its dynamic symbols)"
)
OPEN_SOURCE = "NVIDIA/nccl src/plugin/plugin_open.cc: dlopen with RTLD_NOW, and NCCL's own networks where that fails"
PROJECT_SOURCE = "the names and first lines of log in the plugins' own sources, see probes/libraries.py"
# The plugins that bring NCCL to a fabric. NCCL reaches eRDMA without one; those of verbs do not take it away.
FABRIC_PLUGINS = {"efa": EFA_PLUGINS, "erdma": ("nccl-rdma-sharp-plugins", "uccl-rdma")}
EFA_FOLDER = "/opt/amazon/efa/"
PLATFORM_SOURCE = (
    "aws/aws-ofi-nccl src/platform-aws.c(pp), 1.6.0 to 1.21.1: its first message is in a plugin built with it alone"
)
TOPOLOGY_SOURCE = (
    "aws/aws-ofi-nccl src/platform-aws.c(pp): XML_DIR; NVIDIA/nccl src/graph/xml.cc; facts/aws-ofi-nccl.yaml"
)
FALLBACK_SOURCE = (
    "NVIDIA/nccl src/transport/net_socket.cc: what is left where no plugin and no verbs provider knows the fabric"
)
NO_FABRIC = "none"  # what the label of the fabric says of an image for InfiniBand, or for one node
FAULT_SOURCE = "facts/faults.yaml, each with its source"
FIRST_WITH_PLATFORMS = "1.6.0"
TUNER_IN_PLUGIN = "libnccl-ofi-tuner.so"  # before aws-ofi-nccl 1.16.0, see facts/aws-ofi-nccl.yaml, files
DEFAULT_NAME_SOURCE = (
    "NVIDIA/nccl src/plugin/plugin_open.cc: the default names; issues 1992 and 2112: a profiler that ends training"
)
DEFAULT_NAMES = {"NCCL_TUNER_PLUGIN": "libnccl-tuner.so", "NCCL_PROFILER_PLUGIN": "libnccl-profiler.so"}
XML_FIX = "build the plugin with the --prefix that it is installed to, or copy its share/aws-ofi-nccl/xml there"
ARCH_FIX = (
    "install aws-ofi-nccl {before} or later, which makes the topology by itself, or give each cpu arch and vendor"
)
NET, TUNER = "ncclNetPlugin_v", "ncclTunerPlugin_v"
REOPENED_SOURCE = "NVIDIA/nccl, issue 1978, and src/plugin/net.cc of 2.27.7, 2.28.3, 2.29.7 and 2.30.3"
FORGETFUL_SINCE, REMEMBERS_SINCE = "2.28.3", "2.30.3"


class FoundPlugin(NamedTuple):
    """The network plugin that the loader finds for NCCL, and what was read of it."""

    path: str
    library: PluginFile


@pytest.fixture
def plugin(inspection: Inspection, libraries: Libraries, nccl: InstalledNccl) -> FoundPlugin:
    """Return the plugin that the loader finds for NCCL; skips where it finds none."""
    if has_broken_file(inspection, libraries, *tried_plugin_names(inspection, libraries, nccl.path)):
        pytest.skip(NO_LIBRARY)
    path = resolved_plugin(inspection, libraries, nccl.path)
    if not path or path not in libraries.plugins:
        pytest.skip("NCCL finds no network plugin: see plugin.found")
    return FoundPlugin(path, libraries.plugins[path])


@pytest.mark.validator("plugin.found", source=SEARCH_SOURCE, fabric="efa")
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


@pytest.mark.validator("nccl.fabric", source=FALLBACK_SOURCE, severity="note")
def test_fabric(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """An image with NCCL has what brings it to EFA or to eRDMA, or says that it is for neither."""
    if inspection.expected.fabric:
        pytest.skip("see plugin.found and verbs.provider")
    if inspection.subject.label("fabric") == NO_FABRIC:
        pytest.skip("its label says that it is for neither")
    if not loads_nccl(files, libraries):
        pytest.skip("nothing in the image uses NCCL")
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


@pytest.mark.validator("plugin.project", source=PROJECT_SOURCE, fabric="any")
def test_project(
    inspection: Inspection, fabric: str, plugin: FoundPlugin, nccl: InstalledNccl, require: Requirement
) -> None:
    """The plugin that NCCL opens is one that knows the fabric: the name libnccl-net.so is everybody's."""
    path, library = plugin
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


@pytest.mark.validator("plugin.newest", source=PROJECT_SOURCE, severity="warning", fabric="efa")
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


@pytest.mark.validator("plugin.broken", source=FAULT_SOURCE, severity="warning", fabric="efa")
def test_broken(inspection: Inspection, plugin: FoundPlugin, nccl: InstalledNccl, require: Requirement) -> None:
    """No version of what brings NCCL to EFA is known not to work beside this NCCL, or for what uses it."""
    in_image = {**component_versions(inspection), "aws-ofi-nccl": plugin.library.version, "nccl": nccl.version}
    version_faults = known_faults(
        inspection, in_image, "aws-ofi-nccl", "efa-installer", "libfabric", "gdrcopy", "deep-ep"
    )
    version_faults.require_none(require, "versions", plugin.library.version or "this plugin")


@pytest.mark.validator("plugin.reopened", source=REOPENED_SOURCE, severity="warning", fabric="efa")
def test_reopened(
    inspection: Inspection,
    libraries: Libraries,
    plugin: FoundPlugin,
    nccl: InstalledNccl,
    require: Requirement,
) -> None:
    """An NCCL that forgets NCCL_NET_PLUGIN with its last communicator finds the same plugin by the default name."""
    environment = started_environment(inspection)
    value = environment.get("NCCL_NET_PLUGIN") or pytest.skip("NCCL_NET_PLUGIN is not set")
    if environment.get("NCCL_NET_PLUGIN_REF_COUNT", "0") != "0":
        pytest.skip("NCCL_NET_PLUGIN_REF_COUNT has NCCL keep the plugin")
    if not versions.at_least(nccl.version, FORGETFUL_SINCE) or versions.at_least(nccl.version, REMEMBERS_SINCE):
        pytest.skip(f"NCCL {nccl.version} keeps the plugin or its name")
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


@pytest.mark.validator("plugin.platform", source=PLATFORM_SOURCE, severity="warning", fabric="efa")
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


@pytest.mark.validator("plugin.topology", source=TOPOLOGY_SOURCE, severity="warning", fabric="efa")
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


@pytest.mark.validator("plugin.tuner", source=SYMBOL_SOURCE, severity="warning", fabric="efa")
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


@pytest.mark.validator("plugin.opens", source=OPEN_SOURCE, severity="warning")
def test_opens(inspection: Inspection, libraries: Libraries, nccl: InstalledNccl, require: Requirement) -> None:
    """The network plugin that NCCL finds can be opened, in an image that is for neither fabric."""
    if inspection.expected.fabric:
        pytest.skip("see chain.holds")
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


@pytest.mark.validator("plugin.others", source=DEFAULT_NAME_SOURCE, severity="warning", fabric="any")
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


@pytest.mark.validator(
    "plugin.libfabric",
    source="the EFA installer puts its libfabric under /opt/amazon/efa; facts/aws-ofi-nccl.yaml, asks",
    fabric="efa",
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
