"""The links that lead NCCL to eRDMA, InfiniBand or RoCE: its own network or a plugin's, libibverbs, a provider.

Also those of machines without a fabric.
"""

import re
from collections.abc import Iterator
from typing import Literal

from rdma_images.chain import links
from rdma_images.chain.nccl_environment import nccl_environment
from rdma_images.chain.requirements import node_links
from rdma_images.chain.verbs import VERBS
from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts import facts_file
from rdma_images.facts.fabric_software import AWS_OFI_NCCL as OFI_PLUGIN
from rdma_images.facts.faults import Faults
from rdma_images.inspection.inspection import Inspection, base_name, describe_missing_libraries, missing_in, nccl_in_use
from rdma_images.inspection.network_chain import Evidence, Link

DRIVERS = {"erdma": "erdma", "ib": "mlx5"}
IB_NETWORK = "ib"  # NCCL's name of its own network, for NCCL_NET
NCCL_NETWORK = "NCCL's own"
SOCKET_NETWORK = "socket"  # NCCL's name of its sockets
VERBS_PROVIDER = "verbs"  # of libfabric, for InfiniBand, RoCE and eRDMA
IB_DISABLE = "NCCL_IB_DISABLE"  # which NCCL reads for its own network, and no plugin of SHARP
SHARP = "nccl-rdma-sharp-plugins"
# Mellanox/nccl-rdma-sharp-plugins 2f5ac02 and all its releases since 2.0.0: NCCL_PARAM in src/ib_plugin.c,
# src/ucx_plugin.c and src/ucx_rma_plugin.c, by what NCCL_PLUGIN_P2P chooses in src/p2p_plugin.c.
P2P_LAYER = "NCCL_PLUGIN_P2P"
DISABLING_VARIABLES = {"ucx": "NCCL_UCX_DISABLE", "ucx_rma": "NCCL_UCX_RMA_DISABLE"}
IBEXT_DISABLE = "NCCL_IBEXT_DISABLE"
NOT_ZERO = re.compile(r"\s*[+-]?(0[xX]0*[1-9a-fA-F]|0*[1-9])")
SHARP_NETWORKS = ("ibext", "ucx", "nccl rdma plugin")  # how what they call themselves begins
NO_VERBS = f"the image has no {VERBS}: its package is libibverbs1 (rpm: libibverbs), with ibverbs-providers"
WITHOUT_VERBS = (*links.EFA_PLUGINS, "uccl-afxdp", "nccl-fastsocket")  # which leave RDMA to NCCL's own network


def rdma_links(inspection: Inspection, fabric: str, instance: str) -> Iterator[Link]:
    """Yield the links of eRDMA or InfiniBand, in NCCL's order."""
    yield _nccl_link(inspection, fabric)
    yield _settings_link(inspection, fabric)
    yield links.instance_link(instance)
    yield _network_link(inspection, fabric)
    yield _libibverbs_link(inspection)
    yield links.verbs_provider_link(inspection, DRIVERS[fabric])
    yield from node_links(fabric)


def sharp_plugin(inspection: Inspection) -> str:
    """Return the plugin of HPC-X that NCCL prefers to its own network; "" for none."""
    file, environment = links.plugin_in_use(inspection), nccl_environment(inspection)
    if environment.get("NCCL_NET", "").lower() == IB_NETWORK or _project(inspection, file) != SHARP:
        return ""
    return "" if _is_set(environment, sharp_disabling_variable(environment)) else file


def sharp_disabling_variable(environment: dict[str, str]) -> str:
    """Return the variable with which HPC-X's plugin is switched off."""
    return DISABLING_VARIABLES.get(environment.get(P2P_LAYER, "").lower(), IBEXT_DISABLE)


def _is_set(environment: dict[str, str], name: str) -> bool:
    """Return whether a variable is a number other than 0, as NCCL reads it.

    It does so with strtoll (NCCL, src/misc/param.cc).
    """
    return bool(NOT_ZERO.match(environment.get(name, "")))


def _project(inspection: Inspection, file: str) -> str:
    """Return the project that a plugin comes from; "" if that is unknown.

    A plugin that needs libfabric and names no project is aws-ofi-nccl or made from it.
    """
    plugin = inspection.measured.tree.libraries.plugins.get(file) if inspection.measured.tree else None
    if not plugin or plugin.project:
        return plugin.project if plugin else ""
    return OFI_PLUGIN if plugin.version or "libfabric.so.1" in plugin.needed else ""


def _nccl_link(inspection: Inspection, fabric: str) -> Link:
    """Return the NCCL, and whether it is known to end on an eRDMA device."""
    link, nccl = links.nccl_link(inspection), nccl_in_use(inspection)
    if fabric != "erdma" or not nccl:
        return link
    faults = (row for row in facts_file.read(Faults).faults if row.component == "nccl" and row.refuses)
    fault = next((row.why for row in faults if row.holds_for({"nccl": nccl.version}, fabric=fabric)), None)
    return link.model_copy(update={"fault": fault, "leads_to": "end"}) if fault else link


def _settings_link(inspection: Inspection, fabric: str) -> Link:
    """Return the link of the variables that may leave NCCL no way to RDMA."""
    link, environment = links.settings_link(inspection, fabric), nccl_environment(inspection)
    if link.fault or not _is_set(environment, IB_DISABLE) or sharp_plugin(inspection):
        return link
    switched_off = f"{IB_DISABLE}={environment[IB_DISABLE]} switches NCCL's own InfiniBand and RoCE transport off"
    file, variable = links.plugin_in_use(inspection), sharp_disabling_variable(environment)
    project = _project(inspection, file)
    if environment.get("NCCL_NET", "").lower() == IB_NETWORK or not file or project in WITHOUT_VERBS:
        return link.model_copy(update={"fault": switched_off})
    if project == SHARP:
        return link.model_copy(
            update={"fault": f"{switched_off}, and {variable}={environment[variable]} that of {file}"}
        )
    return link.model_copy(update={"unknown": f"{switched_off}, and it is not known whether {file} reads it"})


def _network_link(inspection: Inspection, fabric: str) -> Link:
    """Return the link of the network that NCCL takes.

    It is a plugin's, where one starts, else NCCL's own; with NCCL_NET that one alone.
    """
    environment, file = nccl_environment(inspection), links.plugin_in_use(inspection)
    requested, run = environment.get("NCCL_NET", ""), links.started_plugin(inspection)
    project = _project(inspection, file)
    is_sharp = project == SHARP
    is_switched_off = is_sharp and _is_set(environment, sharp_disabling_variable(environment))
    if requested and (broken := _broken_request(inspection, file, requested, is_sharp)):
        return broken
    if not file or requested.lower() == IB_NETWORK or is_switched_off:
        return Link(name="network", value=NCCL_NETWORK, how="executed" if inspection.measured.network else "read")
    if project in WITHOUT_VERBS and (link := _link_beside_verbs(inspection, fabric, file, project, requested)):
        return link
    words = [line.text for line in run.log] if run else []
    network = run.network if run and run.path == file else ""
    value = f"{network} of {base_name(file)}".removeprefix(" of ")
    if is_sharp and _is_set(environment, IB_DISABLE):
        value += f", which ignores {IB_DISABLE}"
    elif not requested:
        value += " if it starts, else NCCL's own"
    return Link(name="network", value=value, how="executed" if run else "read", words=words)


def _broken_request(inspection: Inspection, file: str, requested: str, is_sharp: bool) -> Link | None:
    """Return the link of a network that NCCL_NET names and the image lacks, or may lack; None where it has it."""
    environment, run = nccl_environment(inspection), links.started_plugin(inspection)
    if is_sharp and requested.lower().startswith(SHARP_NETWORKS):
        variable = sharp_disabling_variable(environment)
        if not _is_set(environment, variable):
            return None
        fault = f"NCCL_NET={requested} names the network that {variable}={environment[variable]} switches off"
        return Link(name="network", how="executed" if run else "read", fault=fault)
    if requested.lower() in (IB_NETWORK, *_network_names(inspection, file)):
        return None
    if file and not run:
        return Link(name="network", unknown=f"{file} was not run: it may be the network of NCCL_NET={requested}")
    fault = f"NCCL_NET={requested} names a network that the image does not have"
    return Link(name="network", how="executed", fault=fault)


def _link_beside_verbs(inspection: Inspection, fabric: str, file: str, project: str, requested: str) -> Link | None:
    """Return the network of a plugin that leaves RDMA to NCCL; None where it may start.

    Args:
        requested: The value of NCCL_NET, which names this plugin; "" where it is not set.
    """
    title, name, run = FABRIC_TITLES[fabric], base_name(file), links.started_plugin(inspection)
    how: Evidence = "executed" if run else "read"
    uses_libfabric = project == OFI_PLUGIN
    obstacle = links.provider_obstacle(inspection, (VERBS_PROVIDER,), title)
    if uses_libfabric and not obstacle:
        unknown = f"it is not known whether {name} finds {title} with libfabric's provider {VERBS_PROVIDER}"
        return Link(name="network", how=how, unknown=unknown) if requested else None
    has_tcp = uses_libfabric and not links.provider_obstacle(inspection, links.TCP_PROVIDERS, "TCP")
    leads_to: Literal["tcp", "end"] = "tcp" if has_tcp or project not in links.EFA_PLUGINS else "end"
    if requested:
        reason = obstacle if uses_libfabric else f"which does not use {title}"
        fault = f"NCCL_NET={requested} asks for {name} alone, {reason}"
        return Link(name="network", how=how, fault=fault, leads_to=leads_to)
    if leads_to == "end":
        return Link(name="network", value=NCCL_NETWORK, how=how, note=f"{name} finds no device")
    if not (run and run.result == 0 and run.devices):
        return None
    fault = f"NCCL takes {name} before its own network, and it starts over TCP{' of libfabric' * has_tcp}"
    return Link(name="network", how=how, fault=fault, leads_to=leads_to)


def tcp_links(inspection: Inspection, fabric: str, _: str) -> Iterator[Link]:
    """Yield the links of machines without a fabric, where NCCL uses TCP."""
    yield links.nccl_link(inspection)
    yield links.settings_link(inspection, fabric)
    environment, run = nccl_environment(inspection), links.started_plugin(inspection)
    requested, file = environment.get("NCCL_NET", ""), links.plugin_in_use(inspection)
    fault, unknown, value = "", "", "NCCL's own"
    if requested.lower() in _network_names(inspection, file) and _project(inspection, file) == OFI_PLUGIN:
        value = f"{requested} of {base_name(file)}, over libfabric's TCP"
        if obstacle := links.provider_obstacle(inspection, links.TCP_PROVIDERS, "TCP"):
            fault = f"NCCL_NET={requested} asks for {base_name(file)} alone, {obstacle}"
    elif requested and requested.lower() not in (SOCKET_NETWORK, IB_NETWORK) and file and not run:
        unknown = f"{file} was not run: it may be the network of NCCL_NET={requested}"
    elif requested and requested.lower() != SOCKET_NETWORK:
        fault = f"NCCL_NET={requested} asks for a network that needs a fabric"
    how: Evidence = "executed" if run else "read"
    yield Link(name="network", value=value, how=how, fault=fault, unknown=unknown)


def _network_names(inspection: Inspection, file: str) -> list[str]:
    """Return the names of a plugin's network, in lower case; none where it was not run."""
    run = links.started_plugin(inspection)
    names = links.network_names(inspection, run) if run and run.path == file and run.network else []
    return [name.lower() for name in names]


def _libibverbs_link(inspection: Inspection) -> Link:
    """Return the libibverbs that NCCL opens."""
    network, tree = inspection.measured.network, inspection.measured.tree
    load_result = network.verbs if network else None
    if load_result:
        reason = load_result.error.removeprefix(f"{VERBS}: ")
        problem = NO_VERBS if reason == links.NO_SUCH_FILE else f"NCCL cannot open {VERBS}: {reason}"
        fault = "" if load_result.path else problem
        return Link(name="libibverbs", value=base_name(load_result.path), how="executed", fault=fault)
    answer = tree.libraries.resolved[VERBS] if tree else None
    if not answer:
        return Link(name="libibverbs", unknown="the files of the image were not read")
    missing = missing_in(tree.libraries, answer.file) if tree and answer.file else []
    reason = answer.error or (f"it finds no {describe_missing_libraries(inspection, missing)}" if missing else "")
    fault = f"NCCL cannot open {VERBS}: {reason}" if reason else ""
    fault = fault or (links.loader_refusal(tree.libraries, answer.file) if tree else "")
    return Link(name="libibverbs", value=base_name(answer.file), fault=fault if answer.file else NO_VERBS)
