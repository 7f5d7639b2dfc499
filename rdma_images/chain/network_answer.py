"""The answer of a chain: which network NCCL would use, and the first link that breaks."""

import re
from collections.abc import Iterable, Iterator
from typing import get_args

from rdma_images.chain import efa_links, links
from rdma_images.chain.nccl_environment import DEFAULT_PLUGIN, nccl_environment, plugin_names
from rdma_images.chain.verbs import VERBS, opened_providers
from rdma_images.chain.verbs_links import DRIVERS, NCCL_NETWORK, SOCKET_NETWORK, rdma_links, tcp_links
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import FABRIC_TITLES
from rdma_images.core.plain import plain
from rdma_images.facts import facts_file
from rdma_images.facts.instances import Instances
from rdma_images.inspection.inspection import Expected, ImageConfig, Inspection, base_name, nccl_in_use
from rdma_images.inspection.measurements import Measured
from rdma_images.inspection.network_chain import Chain, Link, Outcome

FABRICS = get_args(Chain.model_fields["fabric"].annotation)
IGNORED_VARIABLES = ("HOME", "TMPDIR", "PYTHONDONTWRITEBYTECODE")
VERSION = re.compile(r"\d+\.\d+\.\d+")


def compute_chain(inspection: Inspection, fabric: str = "", instance: str = "") -> Chain | None:
    """Return the chain of an image on a fabric; None without an NCCL and a requested fabric or type.

    Args:
        fabric: one of FABRICS; "" for the instance's, else what the image is for or shows.
        instance: an instance type of facts/instances.yaml; "" for none in particular.

    Raises:
        RefusedError: There is no such fabric or instance type, or they contradict each other.
    """
    requested = requested_fabric(fabric, instance)
    nccl = nccl_in_use(inspection)
    if not nccl and not fabric and not instance:
        return None
    chain_fabric = requested or inspection.expected.fabric or _fabric_of_providers(inspection)
    links_by_fabric = {
        "efa": efa_links.efa_links,
        "erdma": rdma_links,
        "ib": rdma_links,
        "none": tcp_links if fabric else _links_of_unknown_fabric,
    }
    chain_links = links_by_fabric[chain_fabric](inspection, chain_fabric, instance)
    return _build_chain(inspection, chain_fabric, instance, _until_broken(inspection, chain_links))


def requested_fabric(fabric: str, instance: str) -> str:
    """Return the fabric of `--fabric`, else that of the instance type; "" for none.

    Raises:
        RefusedError: There is no such fabric or instance type, or they contradict each other.
    """
    if fabric and fabric not in FABRICS:
        raise RefusedError(f"--fabric {fabric}: no such fabric\n{suggestion(fabric, FABRICS)}")
    instance_type = facts_file.read(Instances).find(instance) if instance else None
    if instance_type and fabric and fabric not in (instance_type.fabric, "none"):
        raise RefusedError(
            f"--instance {instance} has {FABRIC_TITLES[instance_type.fabric]}\nleave --fabric {fabric} out"
        )
    return fabric or (instance_type.fabric if instance_type else "")


def _fabric_of_providers(inspection: Inspection) -> str:
    """Return the fabric that an image for neither EFA nor eRDMA shows by its verbs providers."""
    tree = inspection.measured.tree
    drivers = opened_providers(tree.files, tree.libraries).values() if tree else ()
    return "ib" if DRIVERS["ib"] in drivers else "none"


def _links_of_unknown_fabric(inspection: Inspection, _: str, __: str) -> Iterator[Link]:
    """Yield the links of an image that shows no fabric; those parts of one that it has may be broken."""
    yield links.nccl_link(inspection)
    tree = inspection.measured.tree
    if not tree:
        yield Link(name="fabric", unknown="the files of the image were not read")
        return
    verbs = tree.libraries.resolved[VERBS].file
    lacks = f"{base_name(verbs)} has no driver" if verbs else f"there is no {VERBS}"
    plugin = tree.libraries.plugins.get(file := links.plugin_in_use(inspection))
    fault = efa_links.missing_dependency(inspection, file, plugin, tree.libraries) if plugin else ""
    if fault or not (opened_providers(tree.files, tree.libraries) or tree.libraries.plugins):
        fault = fault or f"{lacks} for InfiniBand, RoCE or eRDMA, and no plugin for EFA"
        yield Link(name="fabric", fault=fault)
        return
    yield Link(name="fabric", unknown="the image shows no fabric that it is for: ask with --fabric efa, erdma or ib")


def _until_broken(inspection: Inspection, chain_links: Iterable[Link]) -> list[Link]:
    """Return the links up to the first that breaks, or after which nothing can be said."""
    reached_links = []
    for link in chain_links:
        reached_links.append(link)
        if link.fault or (link.name == "NCCL" and link.unknown and not _finds_plugin(inspection)):
            break
    return reached_links


def _finds_plugin(inspection: Inspection) -> bool:
    """Return whether the loader finds a plugin by NCCL's default name."""
    tree = inspection.measured.tree
    resolved = tree.libraries.resolved.get(DEFAULT_PLUGIN) if tree else None
    return bool(resolved and resolved.file)


def _build_chain(inspection: Inspection, fabric: str, instance: str, reached_links: list[Link]) -> Chain:
    broken = next((link for link in reached_links if link.fault), None)
    unmeasured = next((link for link in reached_links if link.unknown), None)
    nccl = nccl_in_use(inspection)
    library = f"NCCL {nccl.version}" if nccl and nccl.version else "NCCL"
    outcome: Outcome
    network = instance or FABRIC_TITLES.get(fabric, "")
    prefix = f"On {network} " if network else ""
    if fabric == "none" and reached_links[-1].name == "network":
        prefix = f"{prefix}without a fabric " if instance else "Without a fabric "
    if broken:
        outcome = broken.leads_to or _outcome_by_nccl_net(inspection)
        effect = "would stop with an error" if outcome == "end" else "would use TCP sockets"
        answer = f"{prefix}{library} {effect}: {broken.fault}"
    elif unmeasured:
        subject = f"{prefix}it" if prefix else "It"
        outcome, answer = "unknown", f"{subject} cannot be said what {library} would use: {unmeasured.unknown}"
    elif fabric == "none":
        outcome, answer = "tcp", f"{prefix}{library} would use TCP sockets: {reached_links[-1].value}"
    else:
        steps = [link for link in reached_links if link.name in links.PATH_LINKS[fabric] and link.value != NCCL_NETWORK]
        outcome, answer = "fabric", f"{prefix}{library} would use {FABRIC_TITLES[fabric]}: {_describe_path(steps)}"
    return Chain.model_validate(
        {"fabric": fabric, "instance": instance, "outcome": outcome, "answer": plain(answer), "links": reached_links}
    )


def _describe_path(steps: list[Link]) -> str:
    """Return the libraries from NCCL to the device, and whether any of them was run."""
    suffix = "" if any(link.how == "executed" for link in steps) else " (read, not run)"
    return f"{' → '.join(link.value for link in steps)}{suffix}"


def _outcome_by_nccl_net(inspection: Inspection) -> Outcome:
    """Return "end" where NCCL_NET names a network, else "tcp".

    Without that network NCCL does not go on with sockets.
    """
    network = nccl_environment(inspection).get("NCCL_NET", "").lower()
    return "tcp" if network in ("", SOCKET_NETWORK) else "end"


def network_request(image_config: ImageConfig, measured: Measured, product: str = "") -> dict[str, object] | None:
    """Return what probes/network.py takes; None where no NCCL's version is known.

    Args:
        measured: what was measured in it, but the network.
        product: the instance type that the plugin is to see; "" for none.
    """
    expected = Expected(fabric=None, reason="not asked here")
    inspection = Inspection(subject=image_config, expected=expected, measured=measured)
    nccl, tree = nccl_in_use(inspection), measured.tree
    if not nccl or not tree or not VERSION.match(nccl.version):
        return None
    environment = nccl_environment(inspection)
    library = tree.libraries.nccl.get(nccl.path)
    entry = measured.entry
    return {
        "names": plugin_names(nccl.version, environment),
        "looks_for": library.looks_for if library else {},
        "requiring_file": nccl.path,
        "environment": {
            name: value
            for name, value in environment.items()
            if value != image_config.environment.get(name) and name not in IGNORED_VARIABLES
        },
        "removed": entry.removed if entry else [],
        "product": product,
        "providers": list(opened_providers(tree.files, tree.libraries)),
    }
