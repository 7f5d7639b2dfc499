"""The links that lead NCCL to eRDMA, InfiniBand or RoCE: its own network or a plugin's, libibverbs, a provider."""

import re
from collections.abc import Iterator

from rdma_images.chain import links
from rdma_images.chain.nccl_environment import nccl_environment
from rdma_images.chain.verbs import VERBS
from rdma_images.facts import facts_file
from rdma_images.facts.aws_ofi_nccl import NAME as OFI_PLUGIN
from rdma_images.facts.erdma import Erdma
from rdma_images.inspection.chain import Link
from rdma_images.inspection.inspection import Inspection, base_name, describe_missing_libraries, missing_in, nccl_in_use

DRIVERS = {"erdma": "erdma", "ib": "mlx5"}
BUILT_IN = "ib"  # NCCL's name of its own network, for NCCL_NET
NCCL_NETWORK = "NCCL's own"
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
    yield links.instance_link(fabric, instance)
    yield _network_link(inspection)
    yield _libibverbs_link(inspection)
    yield links.verbs_provider_link(inspection, DRIVERS[fabric])


def sharp_plugin(inspection: Inspection) -> str:
    """Return the plugin of HPC-X that NCCL takes before its own network; "" where it takes another, or none."""
    file, environment = links.plugin_file(inspection), nccl_environment(inspection.subject, inspection.measured)
    if environment.get("NCCL_NET", "").lower() == BUILT_IN or _project(inspection, file) != SHARP:
        return ""
    return "" if _is_set(environment, sharp_disabling_variable(environment)) else file


def sharp_disabling_variable(environment: dict[str, str]) -> str:
    """Return the variable with which HPC-X's plugin is switched off."""
    return DISABLING_VARIABLES.get(environment.get(P2P_LAYER, "").lower(), IBEXT_DISABLE)


def _is_set(environment: dict[str, str], name: str) -> bool:
    """Return whether a variable is a number other than 0, as NCCL reads it: with strtoll (NCCL, src/misc/param.cc)."""
    return bool(NOT_ZERO.match(environment.get(name, "")))


def _project(inspection: Inspection, file: str) -> str:
    plugin = inspection.measured.tree.libraries.plugins.get(file) if inspection.measured.tree else None
    return plugin.project or (OFI_PLUGIN if plugin.version else "") if plugin else ""


def _nccl_link(inspection: Inspection, fabric: str) -> Link:
    """Return the NCCL, and whether it is known to end on an eRDMA device."""
    link, file = links.nccl_link(inspection), nccl_in_use(inspection)
    broken = facts_file.read(Erdma).broken_nccl
    if fabric != "erdma" or not file or file[1] not in broken:
        return link
    return link.model_copy(update={"fault": broken[file[1]].why})


def _settings_link(inspection: Inspection, fabric: str) -> Link:
    """Return the variables that decide about the network, and whether they leave no way to RDMA."""
    link, environment = (
        links.settings_link(inspection, fabric),
        nccl_environment(inspection.subject, inspection.measured),
    )
    if link.fault or not _is_set(environment, IB_DISABLE) or sharp_plugin(inspection):
        return link
    switched_off = f"{IB_DISABLE}={environment[IB_DISABLE]} switches NCCL's own InfiniBand and RoCE transport off"
    file, variable = links.plugin_file(inspection), sharp_disabling_variable(environment)
    project = _project(inspection, file)
    if environment.get("NCCL_NET", "").lower() == BUILT_IN or not file or project in WITHOUT_VERBS:
        return link.model_copy(update={"fault": switched_off})
    if project == SHARP:
        return link.model_copy(
            update={"fault": f"{switched_off}, and {variable}={environment[variable]} that of {file}"}
        )
    return link.model_copy(update={"unknown": f"{switched_off}, and it is not known whether {file} reads it"})


def _network_link(inspection: Inspection) -> Link:
    """Return which network NCCL takes: a plugin's, where one starts, else its own."""
    environment, file = nccl_environment(inspection.subject, inspection.measured), links.plugin_file(inspection)
    requested, run = environment.get("NCCL_NET", ""), links.started_plugin(inspection)
    is_sharp, variable = _project(inspection, file) == SHARP, sharp_disabling_variable(environment)
    network = run.network if run and run.path == file else ""
    known_names = [BUILT_IN, *([network.lower()] if network else [])]
    names_sharp = is_sharp and requested.lower().startswith(SHARP_NETWORKS)
    if names_sharp and _is_set(environment, variable):
        fault = f"NCCL_NET={requested} names the network that {variable}={environment[variable]} switches off"
        return Link(name="network", how="executed" if run else "read", fault=fault)
    if requested and requested.lower() not in known_names and not names_sharp:
        if file and not run:
            return Link(name="network", unknown=f"{file} was not run: it may be the network of NCCL_NET={requested}")
        fault = f"NCCL_NET={requested} names a network that the image does not have"
        return Link(name="network", how="executed", fault=fault)
    default = Link(name="network", value=NCCL_NETWORK, how="executed" if inspection.measured.network else "read")
    if not file or requested.lower() == BUILT_IN or (is_sharp and _is_set(environment, variable)):
        return default
    words = [line.text for line in run.log] if run else []
    value = f"{network} of {base_name(file)}".removeprefix(" of ")
    unread = is_sharp and _is_set(environment, IB_DISABLE)
    value += f", which ignores {IB_DISABLE}" if unread else " if it starts, else NCCL's own"
    return Link(name="network", value=value, how="executed" if run else "read", words=words)


def _libibverbs_link(inspection: Inspection) -> Link:
    """Return the libibverbs that NCCL opens."""
    load_result, tree = (
        inspection.measured.network.verbs if inspection.measured.network else None,
        inspection.measured.tree,
    )
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
