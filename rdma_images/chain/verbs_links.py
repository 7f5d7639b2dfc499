"""The links that lead NCCL's own network for RDMA to eRDMA, InfiniBand or RoCE."""

from collections.abc import Iterator

from rdma_images.chain import links
from rdma_images.chain.environment import nccl_environment
from rdma_images.chain.verbs import VERBS
from rdma_images.facts import table as facts_table
from rdma_images.facts.erdma import Erdma
from rdma_images.inspection.chain import Link
from rdma_images.inspection.inspection import Inspection, base_name, missing_in, nccl_in_use

DRIVERS = {"erdma": "erdma", "ib": "mlx5"}
BUILT_IN = "ib"  # NCCL's name of it, for NCCL_NET


def verbs(case: Inspection, fabric: str, instance: str) -> Iterator[Link]:
    """Yield the links of eRDMA or InfiniBand, in NCCL's order."""
    yield _nccl(case, fabric)
    yield links.settings(case, fabric)
    yield links.on_instance(fabric, instance)
    yield _network(case)
    yield _libibverbs(case)
    yield links.verbs_provider(case, DRIVERS[fabric])


def _nccl(case: Inspection, fabric: str) -> Link:
    """Return the NCCL, and whether it is known to end on an eRDMA device."""
    link, file = links.nccl(case), nccl_in_use(case)
    broken = facts_table.read(Erdma).broken_nccl
    if fabric != "erdma" or not file or file[1] not in broken:
        return link
    return link.model_copy(update={"fault": broken[file[1]].why})


def _network(case: Inspection) -> Link:
    """Return which network NCCL takes: a plugin's, where one starts, else its own."""
    run = links.started_plugin(case)
    named = nccl_environment(case.subject, case.measured).get("NCCL_NET", "")
    opened = run if run and run.path and run.interfaces.get(links.NET) else None
    networks = [BUILT_IN] + ([opened.network.lower()] if opened else [])
    if named and named.lower() not in networks:
        return Link(
            name="network", how="executed", fault=f"NCCL_NET={named} names a network that the image does not have"
        )
    if opened and named.lower() != BUILT_IN:
        value = f"{opened.network} of {base_name(opened.path)} if it starts, else NCCL's own"
        return Link(name="network", value=value, how="executed", words=[line.text for line in opened.log])
    return Link(name="network", value="NCCL's own", how="executed" if case.measured.network else "read")


def _libibverbs(case: Inspection) -> Link:
    """Return the libibverbs that NCCL opens."""
    played, tree = case.measured.network.verbs if case.measured.network else None, case.measured.tree
    if played:
        fault = "" if played.path else f"NCCL cannot open {VERBS}: {played.error}"
        return Link(name="libibverbs", value=base_name(played.path), how="executed", fault=fault)
    answer = tree.libraries.resolved[VERBS] if tree else None
    if not answer:
        return Link(name="libibverbs", unknown="the files of the image were not read")
    missing = missing_in(tree.libraries, answer.file) if tree and answer.file else []
    reason = answer.error or (f"it needs {', '.join(missing)}" if missing else "")
    reason = reason or ("" if answer.file else "not found")
    fault = f"NCCL cannot open {VERBS}: {reason}" if reason else ""
    return Link(name="libibverbs", value=base_name(answer.file), fault=fault)
