"""The links that lead NCCL to EFA: its plugin, libfabric, the provider efa, and the rdma-core that it needs."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rdma_images.chain import links
from rdma_images.chain.nccl_environment import DEFAULT_VERSION, nccl_environment, plugin_names
from rdma_images.chain.requirements import node_links, plugin_requirements
from rdma_images.facts.fabric_software import AWS_OFI_NCCL as OFI_PLUGIN
from rdma_images.facts.fabric_software import EFA_INSTALLER
from rdma_images.inspection.inspection import Inspection, base_name, describe_missing_libraries, missing_in, nccl_in_use
from rdma_images.inspection.measurements import Libraries, PluginFile, ResolvedLibrary, StartedLibrary
from rdma_images.inspection.network_chain import Evidence, Link

TUNER = "ncclTunerPlugin_v"
RDMA_CORE_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")
# What aws-ofi-nccl says where libfabric has no device for it: src/nccl_ofi_net.c(pp), nccl_ofi_rdma.c(pp) and
# nccl_ofi_sendrecv.c(pp), 1.7.0 to 1.21.1.
NO_DEVICE = re.compile(
    r"No eligible providers|Unable to find a protocol that worked|Failed to initialize (?:rdma|sendrecv) protocol"
    r"|failed to find any (?:provider|devices?)",
    re.IGNORECASE,
)
# The same of CUDA without a driver; that libcudart.so itself is not there is a fault of the image.
NO_DRIVER = re.compile(r"Failed to (?:resolve CUDA function|query CUDA)|CUDA driver|cuda\w*|libcuda\.so", re.IGNORECASE)
NO_RUNTIME = "Failed to find CUDA Runtime library"
DRIVER_LIBRARY = re.compile(r"libcuda\.so|libnvidia-ml\.so")
GENERIC_WARNING = re.compile(r"(?:CUDA )?initialization failed|Initializing plugin failed")
OFI_VERSION = re.compile(r"Initializing aws-ofi-nccl (\S+)")
WARNING_LEVEL = 2


class PluginStart(NamedTuple):
    """Why NCCL does not take a plugin, or why that cannot be told; each "" where it does not apply."""

    fault: str = ""
    unknown: str = ""


def efa_links(inspection: Inspection, _: str, instance: str) -> Iterator[Link]:
    """Yield the links of EFA, in NCCL's order."""
    yield links.nccl_link(inspection)
    yield links.settings_link(inspection, "efa")
    yield links.instance_link(instance)
    if not inspection.measured.tree:
        yield Link(name="plugin", unknown="the files of the image were not read")
        return
    run, libraries = links.started_plugin(inspection), inspection.measured.tree.libraries
    yield plugin_link(inspection, run, libraries)
    yield _libfabric_link(inspection, run, libraries)
    yield from _provider_links(inspection, libraries)
    yield links.verbs_provider_link(inspection, "efa")
    yield plugin_requirements(libraries)
    yield from node_links("efa")


def plugin_link(inspection: Inspection, run: StartedLibrary | None, libraries: Libraries) -> Link:
    """Return the plugin's link: its file, its interfaces, and the result of starting it."""
    if run is None:
        return _read_plugin(inspection, libraries)
    tried = inspection.measured.network.plugins if inspection.measured.network else []
    words = [line.text for line in run.log] + run.stderr_tail
    if not run.path:
        if all(DRIVER_LIBRARY.search(attempt.error) for attempt in tried):
            absent = _absence(inspection)
            unknown = f"{run.name} is linked with the GPU driver's library, {absent} ({run.error})"
            return Link(name="plugin", value=run.name, how="executed", unknown=unknown)
        if script := links.entry_point_choice(inspection):
            return Link(
                name="plugin", how="executed", unknown=f"{script} chooses the plugin by what it finds on a node"
            )
        return Link(name="plugin", how="executed", fault=_opening_failure(inspection, tried), words=words)
    net, tuner = run.interfaces.get(links.NET, 0), run.interfaces.get(TUNER, 0)
    library = libraries.plugins.get(run.path)
    version = next((match[1] for line in run.log if (match := OFI_VERSION.search(line.text))), "")
    version = version or (library.version if library else "")
    interfaces = ", ".join(f"{kind} v{number}" for kind, number in (("net", net), ("tuner", tuner)) if number)
    value = " ".join(filter(None, (base_name(run.path), version, f"({interfaces})" if interfaces else "")))
    start = _judge_start(inspection, run, libraries, net)
    note = "" if start.fault or start.unknown or run.result == 0 else _start_progress(inspection, run)
    return Link(
        name="plugin",
        value=value,
        how="executed",
        fault=start.fault,
        unknown=start.unknown,
        note=note,
        words=words,
        leads_to="end" if start.fault and run.end_reason else "",
    )


def _opening_failure(inspection: Inspection, tried: Sequence[StartedLibrary]) -> str:
    """Return why NCCL could open no plugin under the names that it tries."""
    errors = {attempt.name: attempt.error.removeprefix(f"{attempt.name}: ") for attempt in tried}
    reasons = [_opening_error(inspection, name, error) for name, error in errors.items() if error != links.NO_SUCH_FILE]
    if reasons:
        return f"no network plugin can be opened: {'; '.join(reasons)}"
    return _absent_plugin(inspection, list(errors))


def _opening_error(inspection: Inspection, name: str, error: str) -> str:
    """Return why the loader refuses the library that it finds for a name."""
    library = error.removesuffix(f": {links.NO_SUCH_FILE}")
    return (
        links.refusal_sentence(name, error)
        if library == error
        else f"{name} finds no {describe_missing_libraries(inspection, [library])}"
    )


def _absent_plugin(inspection: Inspection, names: Sequence[str]) -> str:
    """Return the sentence that no file has the names that NCCL tries; it names the plugin that exists."""
    value = nccl_environment(inspection).get(links.PLUGIN_VARIABLE, "")
    problem = f"NCCL finds no {' and no '.join(names)}"
    if value:
        file_names = " or ".join(name for name in names if name != value)
        problem = (
            f"{links.PLUGIN_VARIABLE}={value}{f' asks for {file_names}, which' if file_names else ''} is not there"
        )
    if "/" in value and value not in names:
        problem = f"{links.PLUGIN_VARIABLE}={value} is a path, and this NCCL takes it for a part of a name"
    plugins = inspection.measured.tree.libraries.plugins if inspection.measured.tree else {}
    path = next((path for path, plugin in plugins.items() if plugin.exports.get(links.NET) and not plugin.error), "")
    if path and path == value:
        return problem
    if path:
        return f"{problem}; there is {path}"
    return f"{problem}, and the image has no network plugin, as aws-ofi-nccl is for EFA"


def _judge_start(inspection: Inspection, run: StartedLibrary, libraries: Libraries, net: int) -> PluginStart:
    """Judge whether NCCL takes a plugin that it has opened.

    Args:
        run: What NCCL did with the plugin.
        libraries: The image's libraries of NCCL and plugins.
        net: The version of the network interface that it took; 0 for none.
    """
    nccl, plugin = nccl_in_use(inspection), libraries.plugins.get(run.path)
    nccl_library = libraries.nccl.get(nccl.path) if nccl else None
    if not net:
        offered = plugin.exports.get(links.NET, []) if plugin else []
        accepted = nccl_library.looks_for.get(links.NET, []) if nccl_library else []
        return PluginStart(_interface_mismatch(run.path, offered, accepted))
    network = nccl_environment(inspection).get("NCCL_NET", "")
    stand_in = inspection.stand_in_id(OFI_PLUGIN) or inspection.stand_in_id(EFA_INSTALLER)
    names = links.network_names(inspection, run)
    if network and run.network and network.lower() not in (name.lower() for name in names):
        names_it = f"{run.path} is called {' or '.join(names)}"
        return PluginStart(f"NCCL_NET={network} asks for a network of that name, and {names_it}")
    if plugin and plugin.project and plugin.project not in links.EFA_PLUGINS:
        return PluginStart(f"{run.path} is {plugin.project}, which does not support EFA")
    if stand_in:
        reason = f"the image is a rehearsal without {stand_in}, and a stand-in's plugin does not start"
        return PluginStart(unknown=reason)
    if run.end_reason:
        last = run.log[-1].text if run.log else run.last_step
        return PluginStart(f"{base_name(run.path)} crashes as NCCL starts it ({run.end_reason}), after: {last}")
    return PluginStart() if run.result == 0 and run.devices else PluginStart(_start_failure(inspection, run))


def _interface_mismatch(file: str, offered: Sequence[int], accepted: Sequence[int]) -> str:
    """Return the sentence that a plugin and NCCL have no interface in common."""
    return (
        f"{file} has none of the network interfaces that NCCL looks for: it has {_interfaces(offered)}, "
        f"NCCL takes {_interfaces(accepted)}"
    )


def _interfaces(numbers: Sequence[int]) -> str:
    """Return versions of an interface: "v8 to v11", "v8, v10", or "none"."""
    ordered = sorted(numbers)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"v{ordered[0]} to v{ordered[-1]}"
    return f"v{', v'.join(map(str, ordered))}" if ordered else "none"


def _start_failure(inspection: Inspection, run: StartedLibrary) -> str:
    """Return why a plugin did not start; "" where only a device or a driver is missing, which no image has."""
    warnings = [line.text for line in run.log if line.level <= WARNING_LEVEL]
    if reason := next((text for text in warnings if NO_RUNTIME in text), ""):
        return f"{base_name(run.path)}: {reason}"
    has_gpu = bool(inspection.measured.network and inspection.measured.network.has_gpu)
    specific_warnings = [text for text in warnings if not GENERIC_WARNING.search(text)]
    if any(NO_DEVICE.search(line.text) for line in run.log):
        return ""
    if not has_gpu and any(NO_DRIVER.search(text) for text in warnings):
        return ""
    reason = next(iter(specific_warnings or warnings or run.stderr_tail), f"init returned {run.result}")
    return f"{base_name(run.path)} refuses to start: {reason}"


def _absence(inspection: Inspection) -> str:
    """Return the end of a sentence on hardware that was not found: no image has it, or this machine has none."""
    return "which no image has" if inspection.subject.digest else "and there is none"


def _start_progress(inspection: Inspection, run: StartedLibrary) -> str:
    """Return how far a plugin started that lacks only hardware or its driver."""
    looked_for_devices = any(NO_DEVICE.search(line.text) for line in run.log)
    if looked_for_devices:
        return f"started until it looked for EFA devices, {_absence(inspection)}"
    return f"opened and started until it called the GPU driver, {_absence(inspection)}; libfabric was run apart from it"


def _read_plugin(inspection: Inspection, libraries: Libraries) -> Link:
    """Return the plugin as the files show it, where none could be run."""
    nccl = nccl_in_use(inspection)
    names = plugin_names((nccl.version if nccl else "") or DEFAULT_VERSION, nccl_environment(inspection))
    answer = links.resolved_plugin(libraries, names)
    if answer is None:
        if script := links.entry_point_choice(inspection):
            return Link(name="plugin", unknown=f"{script} chooses the plugin by what it finds on a node")
        return Link(name="plugin", fault=_absent_plugin(inspection, names))
    plugin = libraries.plugins.get(answer.file)
    value = " ".join(filter(None, (base_name(answer.file), plugin.version if plugin else "")))
    fault = _loading_fault(inspection, answer, libraries)
    if fault or plugin is None:
        unknown = "" if fault else f"{answer.file} was not read: its name is no plugin's"
        return Link(name="plugin", value=value, fault=fault, unknown=unknown)
    offered = plugin.exports.get(links.NET, [])
    nccl_library = libraries.nccl.get(nccl.path) if nccl else None  # torch may load one outside of what was read
    accepted = nccl_library.looks_for.get(links.NET, []) if nccl_library else offered
    common = set(offered) & set(accepted)
    if not common:
        fault = _interface_mismatch(answer.file, offered, accepted)
    elif plugin.project and plugin.project not in links.EFA_PLUGINS:
        fault = f"{answer.file} is {plugin.project}, which does not support EFA"
    return Link(name="plugin", value=value if fault else f"{value} (net v{max(common)})", fault=fault)


def _loading_fault(inspection: Inspection, answer: ResolvedLibrary, libraries: Libraries) -> str:
    """Return why the loader refuses the plugin's file; "" where it does not."""
    file = inspection.measured.tree.files.library_files.get(answer.file) if inspection.measured.tree else None
    if file and file.condition:
        return f"{answer.file} is no library ({file.condition.partition(' ')[0].replace('-', ' ')})"
    missing = missing_in(libraries, answer.file)
    if answer.error or missing:
        reason = answer.error or f"it finds no {describe_missing_libraries(inspection, missing)}"
        return f"{answer.file} cannot be opened: {reason}"
    plugin = libraries.plugins.get(answer.file)
    if plugin is None:
        return ""
    return missing_dependency(inspection, answer.file, plugin, libraries) or links.loader_refusal(
        libraries, answer.file
    )


def missing_dependency(inspection: Inspection, file: str, plugin: PluginFile, libraries: Libraries) -> str:
    """Return which library a plugin opens by a name that no file has; "" for none."""
    name = next((name for name in plugin.opens if name in libraries.resolved and not libraries.resolved[name].file), "")
    if not name:
        return ""
    similar_names = sorted({base_name(path) for path in inspection.libraries_named(name) if base_name(path) != name})
    alternative = f"the image has only {similar_names[0]}" if similar_names else "the image has none"
    return f"{file} does not start: it opens {name}, and {alternative}"


def _libfabric_link(inspection: Inspection, run: StartedLibrary | None, libraries: Libraries) -> Link:
    """Return the libfabric that the plugin's process maps."""
    load_result = inspection.measured.network.libfabric if inspection.measured.network else None
    mapped = [path for path in (run.mapped if run else []) if base_name(path).startswith("libfabric.so")]
    path = mapped[0] if mapped else (load_result.path if load_result else libraries.resolved["libfabric.so.1"].file)
    version = libraries.libfabric.get(path, "") or (load_result.version if load_result else "")
    if not path or (load_result and load_result.error):
        error = load_result.error if load_result else "the loader finds no libfabric.so.1"
        return Link(
            name="libfabric", how="executed" if load_result else "read", fault=f"libfabric cannot be opened: {error}"
        )
    how: Evidence = "executed" if mapped or (load_result and load_result.path) else "read"
    return Link(name="libfabric", value=f"libfabric {version}".strip(), how=how, words=[path])


def _provider_links(inspection: Inspection, libraries: Libraries) -> Iterator[Link]:
    """Yield whether that libfabric has the provider efa, and the libefa that it maps."""
    load_result = inspection.measured.network.libfabric if inspection.measured.network else None
    if load_result is None:
        file = libraries.resolved["libefa.so.1"].file
        yield Link(
            name="libefa",
            value=f"libefa {_version(file)}" if file else "",
            fault="" if file else "the loader finds no libefa.so.1",
        )
        return
    if load_result.end_reason:
        fault = f"libfabric crashes as it lists its providers ({load_result.end_reason})"
        yield Link(name="provider", how="executed", fault=fault)
        return
    offered = ", ".join(links.offered_providers(inspection))
    fault = "" if "efa" in load_result.providers else f"libfabric has no provider efa, only {offered or 'none'}"
    yield Link(
        name="provider",
        value="efa",
        how="executed",
        fault=fault,
        words=load_result.stderr_tail,
        leads_to="tcp" if fault and not links.provider_obstacle(inspection, links.TCP_PROVIDERS, "TCP") else "",
    )
    file = next((path for path in load_result.mapped if base_name(path).startswith("libefa.so")), "")
    fault = "" if file else "libfabric loads no libefa.so.1"
    yield Link(name="libefa", value=f"libefa {_version(file)}" if file else "", how="executed", fault=fault)


def _version(file: str) -> str:
    match = RDMA_CORE_VERSION.search(file)
    return match[1] if match else ""
