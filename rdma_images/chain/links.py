"""The links that several fabrics have in their chains, and their readers of plugins and providers."""

import re
from collections.abc import Sequence

from rdma_images.chain.nccl_environment import DEFAULT_VERSION, nccl_environment, plugin_names
from rdma_images.chain.verbs import PROVIDER, VERBS, opened_providers, provider_suffixes
from rdma_images.facts import facts_file
from rdma_images.facts.fabric_software import AWS_OFI_NCCL as OFI_PLUGIN
from rdma_images.facts.fabric_software import EFA_INSTALLER, Plugin
from rdma_images.facts.instances import Instances
from rdma_images.inspection.inspection import (
    Inspection,
    base_name,
    describe_missing_libraries,
    explain_refusal,
    mapped_nccl,
    missing_in,
    nccl_in_use,
    second_nccl,
)
from rdma_images.inspection.measurements import Libraries, ResolvedLibrary, StartedLibrary
from rdma_images.inspection.network_chain import Evidence, Link

PATH_LINKS = {
    "efa": ("plugin", "libfabric", "provider", "libefa"),
    "erdma": ("network", "libibverbs", "verbs provider"),
    "ib": ("network", "libibverbs", "verbs provider"),
}
NET = "ncclNetPlugin_v"
NETWORK_VARIABLE = re.compile(
    r"NCCL_(?:NET|NET_PLUGIN|PLUGIN_P2P|(?:IB|IBEXT|UCX|UCX_RMA)_DISABLE|IB_HCA)|FI_PROVIDER|FI_PROVIDER_PATH|OFI_NCCL_\w+"
)
NO_SUCH_FILE = "cannot open shared object file: No such file or directory"  # dlerror(3)
PLUGIN_VARIABLE, START_SCRIPTS = "NCCL_NET_PLUGIN", "/opt/nvidia/entrypoint.d/"  # that NVIDIA's entry point sources
PROVIDER_VARIABLE = "FI_PROVIDER"
TCP_PROVIDERS = ("tcp", "sockets", "net")  # of libfabric, each by its name in FI_PROVIDER
EFA_PLUGINS = (OFI_PLUGIN, "uccl-efa")


def plugin_in_use(inspection: Inspection) -> str:
    """Return the path of the network plugin that NCCL uses, "" where it uses none.

    It is the one that was run, else the first that the loader opens and that has an interface of this NCCL.
    """
    run, tree, nccl = started_plugin(inspection), inspection.measured.tree, nccl_in_use(inspection)
    if run:
        return run.path if run.interfaces.get(NET) else ""
    if not tree or not nccl or nccl.path not in tree.libraries.nccl:
        return ""
    accepted = set(tree.libraries.nccl[nccl.path].looks_for.get(NET, []))
    for name in plugin_names(nccl.version or DEFAULT_VERSION, nccl_environment(inspection)):
        answer = tree.libraries.resolved.get(name)
        plugin = tree.libraries.plugins.get(answer.file) if answer and not answer.error else None
        if answer and plugin and not missing_in(tree.libraries, answer.file):
            return answer.file if accepted & set(plugin.exports.get(NET, [])) else ""
    return ""


def resolved_plugin(libraries: Libraries, names: Sequence[str]) -> ResolvedLibrary | None:
    """Return the loader's answer for the first of `names` that it opens, else finds."""
    answers = [libraries.resolved[name] for name in names if name in libraries.resolved]
    existing = [answer for answer in answers if answer.file]
    return next((answer for answer in existing if not answer.error), existing[0] if existing else None)


def nccl_link(inspection: Inspection) -> Link:
    """Return the link of the libnccl that a process gets.

    Where there is none, one may come as the job starts.
    """
    nccl, mapped = nccl_in_use(inspection), mapped_nccl(inspection)
    how: Evidence = "executed" if mapped else "read"
    unknown = "" if nccl else "no libnccl is there, and which one comes as the job starts is not known"
    libraries = inspection.measured.tree.libraries if inspection.measured.tree else None
    second = second_nccl(libraries, nccl.path) if nccl and libraries else ""
    note = ""
    if nccl and libraries and second in libraries.nccl:
        other = f"{libraries.nccl[second].version} at {second}"
        note = f"torch takes {nccl.version}, and what loads NCCL without torch {other}"
    value = f"{nccl.version} at {nccl.path}" if nccl else ""
    return Link(name="NCCL", value=value, how=how, unknown=unknown, note=note)


def settings_link(inspection: Inspection, fabric: str) -> Link:
    """Return the link of the variables that may keep NCCL from this fabric."""
    environment, nccl = nccl_environment(inspection), nccl_in_use(inspection)
    relevant = {name: value for name, value in sorted(environment.items()) if NETWORK_VARIABLE.fullmatch(name)}
    net, providers = environment.get("NCCL_NET", "").lower(), environment.get(PROVIDER_VARIABLE)
    fault = ""
    if (net == "socket" and fabric != "none") or (fabric == "efa" and net == "ib"):
        requested = "TCP sockets" if net == "socket" else "NCCL's own InfiniBand transport, which cannot use EFA"
        fault = f"NCCL_NET={environment['NCCL_NET']} asks for {requested}"
    elif fabric == "efa" and nccl and nccl.version and not plugin_names(nccl.version, environment):
        fault = f"NCCL_NET_PLUGIN={environment.get('NCCL_NET_PLUGIN', '')} keeps NCCL from opening a plugin"
    elif fabric == "efa" and not allows_provider(providers, "efa"):
        fault = f"{PROVIDER_VARIABLE}={providers} leaves out libfabric's provider efa"
    without_tcp = provider_obstacle(inspection, TCP_PROVIDERS, "TCP")
    return Link(
        name="settings",
        value=" ".join(f"{name}={value}" for name, value in relevant.items()) or "no variable that chooses a network",
        how="executed" if inspection.measured.entry else "read",
        fault=fault,
        leads_to="tcp" if fault.startswith(PROVIDER_VARIABLE) and not without_tcp else "",
    )


def allows_provider(providers: str | None, name: str) -> bool:
    """Return whether libfabric may use provider `name` under this FI_PROVIDER.

    As ofi_create_filter() does, ofiwg/libfabric src/fabric.c. None is a variable that is not set; an empty one leaves
    no provider.
    """
    if providers is None:
        return True
    names = re.split(r"[,;]", providers.lstrip("^").lower())
    return (name in names) != providers.startswith("^")


def provider_obstacle(inspection: Inspection, names: Sequence[str], title: str) -> str:
    """Return why a plugin gets none of these providers of libfabric, "" where it may.

    The providers lead to `title`.
    """
    providers = nccl_environment(inspection).get(PROVIDER_VARIABLE)
    admitted = [name for name in names if allows_provider(providers, name)]
    if not admitted:
        return f"which {PROVIDER_VARIABLE}={providers} keeps from {title}"
    offered = offered_providers(inspection)
    if not offered or set(admitted) & set(offered):
        return ""
    return f"whose libfabric has no provider for {title}, only {', '.join(offered)}"


def offered_providers(inspection: Inspection) -> list[str]:
    """Return the providers of the libfabric that was run; empty where none was."""
    run = inspection.measured.network.libfabric if inspection.measured.network else None
    return [name for name in run.providers if not name.startswith("ofi_hook")] if run else []


def instance_link(instance: str) -> Link:
    """Return the link of the instance type: how many interfaces it has."""
    value = f"{facts_file.read(Instances).find(instance).interfaces} interfaces" if instance else "none was named"
    return Link(name="instance", value=value, how="facts")


def started_plugin(inspection: Inspection) -> StartedLibrary | None:
    """Return the run of the plugin that NCCL takes, else of the last one that it tried.

    None where no plugin was run.
    """
    runs = inspection.measured.network.plugins if inspection.measured.network else []
    return next((run for run in runs if run.result == 0), next((run for run in runs if run.path), None)) or (
        runs[-1] if runs else None
    )


def network_names(inspection: Inspection, run: StartedLibrary) -> list[str]:
    """Return the names in NCCL_NET to which a plugin that was run answers.

    Loaded, the plugin takes the name in NCCL_NET where it is one of its own; a stand-in has one name.
    """
    if not (inspection.stand_in_id(OFI_PLUGIN) or inspection.stand_in_id(EFA_INSTALLER)):
        return [run.network]
    return facts_file.read(Plugin).network_names(inspection.subject.label(f"component.{OFI_PLUGIN}") or None)


def entry_point_choice(inspection: Inspection) -> str:
    """Return the line of NVIDIA's start scripts that names a plugin of the image for NCCL; "" where none does."""
    assignments, tree = inspection.measured.settings, inspection.measured.tree
    names = {base_name(path) for path in (tree.libraries.plugins if tree else ())}
    nccl = nccl_in_use(inspection)
    version = (nccl.version if nccl else "") or DEFAULT_VERSION
    for setting in assignments.assigned if assignments else ():
        if setting.name != PLUGIN_VARIABLE or not setting.file.startswith(START_SCRIPTS):
            continue
        if names & set(plugin_names(version, {PLUGIN_VARIABLE: setting.value})):
            return f"{setting.file}:{setting.line} ({PLUGIN_VARIABLE}={setting.value})"
    return ""


def verbs_provider_link(inspection: Inspection, driver: str) -> Link:
    """Return the link of the verbs provider: whether libibverbs can open that of `driver`."""
    tree, network = inspection.measured.tree, inspection.measured.network
    if not tree:
        return Link(name="verbs provider", unknown="the files of the image were not read")
    files = [path for path, name in opened_providers(tree.files, tree.libraries).items() if name == driver]
    if not files:
        providers = [
            path for path in tree.files.library_files if (m := PROVIDER.fullmatch(base_name(path))) and m[1] == driver
        ]
        fault = _unopened_provider(tree.libraries, driver, providers)
        return Link(name="verbs provider", fault=fault)
    answers = {path: network.verbs.opened.get(path, "") for path in files} if network and network.verbs.path else {}
    refused = {path: error for path, error in answers.items() if error}
    missing = [name for path in files for name in missing_in(tree.libraries, path)] if not answers else []
    fault = next((refusal_sentence(path, error) for path, error in refused.items()), "")
    fault = fault or (
        f"{files[0]} cannot be opened: it finds no {describe_missing_libraries(inspection, missing)}" if missing else ""
    )
    fault = fault or ("" if answers else loader_refusal(tree.libraries, files[0]))
    return Link(
        name="verbs provider",
        value=base_name(files[0]),
        how="executed" if answers else "read",
        fault=fault,
        words=files,
    )


def loader_refusal(libraries: Libraries, path: str) -> str:
    """Return why the loader would refuse a library that `path` needs, judged by the files; "" if it would not."""
    faults = libraries.closures[path].faults if path in libraries.closures else []
    return next(map(explain_refusal, faults), "")


def refusal_sentence(file: str, error: str) -> str:
    """Return the sentence for a file that the loader refuses with these words."""
    sentence = explain_refusal(error)
    return f"{file} cannot be opened: {error}" if sentence == error else sentence


def _unopened_provider(libraries: Libraries, driver: str, providers: Sequence[str]) -> str:
    """Return why libibverbs opens none of `providers`, the image's files for a driver."""
    verbs, endings = libraries.resolved[VERBS].file or VERBS, tuple(provider_suffixes(libraries))
    if providers and endings and not any(path.endswith(endings) for path in providers):
        return f"{verbs} opens lib{driver}{' or '.join(sorted(endings))}, and the image has {providers[0]}"
    search = f"looks for it in other folders than that of {providers[0]}" if providers else "finds none"
    return f"{VERBS} opens no lib{driver}-rdmav*.so: it {search}"
