"""Rules for a part of a job: a small function each, with its id, its source and a fix.

A rule says nothing where it cannot know: of an instance type without facts, of a value that a template leaves open.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Fabric
from rdma_images.facts.instances import InstanceType
from rdma_images.jobs.check import image_reports
from rdma_images.jobs.check.foreign_job import JobFinding, JobPart
from rdma_images.jobs.check.rules import clouds, containers, counts, ranks, rendezvous, shell_and_sbatch, variables
from rdma_images.jobs.check.rules.rule import EFA, ERDMA, CheckContext, FactTables, JobRule

__all__ = ["RULES", "FactTables", "check"]

ACCELERATE = "accelerate configuration"  # each machine of a job has its own
RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime")
RULES: tuple[JobRule, ...] = tuple(
    value
    for module in (counts, ranks, variables, shell_and_sbatch, rendezvous, containers, clouds)
    for value in vars(module).values()
    if isinstance(value, JobRule)
)


def check(parts: Sequence[JobPart], tables: FactTables) -> Iterator[JobFinding]:
    """Yield what is wrong with the parts of jobs, in their order and that of the rules."""
    runtimes = {
        part.traits["name"].text
        for part in parts
        if "name" in part.traits and part.title.startswith(RUNTIMES) and _asks_for_adapters(part)
    }
    images = {part.image.text for part in parts if part.image}
    versions = {image: image_reports.versions(image) for image in images}
    files: dict[str, list[JobPart]] = {}
    for part in parts:
        files.setdefault(part.file, []).append(part)
    for file_parts in files.values():
        shared = _file_context(file_parts, tables)
        if file_parts[0].title == ACCELERATE:
            shared = replace(shared, siblings=tuple(part for part in parts if part.title == ACCELERATE))
        for part in file_parts:
            runtime = part.traits.get("runtime")
            context = replace(
                shared,
                node=_node(part, tables),
                fabric=_fabric(part, tables) or shared.fabric,
                versions=versions[part.image.text] if part.image else {},
                runtime_adapters=runtime is not None and runtime.text in runtimes,
            )
            for rule in RULES:
                for word, problem, fix, *severity in rule.check(part, context):
                    where = (f"{part.file}:{word.line}",)
                    yield JobFinding(
                        rule.id, severity[0] if severity else rule.severity, where, problem, fix, rule.source
                    )


def _file_context(parts: Sequence[JobPart], tables: FactTables) -> CheckContext:
    """Return what a file's parts say of each other, as the fabric that only one shows."""
    fabrics = [_fabric(part, tables) for part in parts]
    mounts = (part.traits["mounts"].text.split(":") for part in parts if "mounts" in part.traits)
    return CheckContext(
        tables,
        node=None,
        fabric=next((fabric for fabric in fabrics if fabric), None),
        versions={},
        uses_fabric=any(_asks_for_adapters(part) or _fabric_of_variables(part) for part in parts),
        runtime_adapters=False,
        accelerated=any(fabrics) or any(part.gpus or part.kind != "kubernetes" for part in parts),
        mounts=tuple(dict.fromkeys(mount for paths in mounts for mount in paths)),
        siblings=tuple(parts),
    )


def _node(part: JobPart, tables: FactTables) -> InstanceType | None:
    try:
        return tables.instances.find(part.instance.text) if part.instance else None
    except RefusedError:
        return None


def _fabric(part: JobPart, tables: FactTables) -> Fabric | None:
    if node := _node(part, tables):
        return node.fabric
    if EFA in part.requests or EFA in part.limits:
        return "efa"
    if part.kind == "arena" or ERDMA in part.limits or ERDMA in part.requests:
        return "erdma"
    return _fabric_of_variables(part)


def _asks_for_adapters(part: JobPart) -> bool:
    return any(name in resources for name in (EFA, ERDMA) for resources in (part.requests, part.limits))


def _fabric_of_variables(part: JobPart) -> Fabric | None:
    """Return the fabric that only its own variables are for."""
    if any(name.startswith(("FI_EFA_", "OFI_NCCL_")) for name in part.environment):
        return "efa"
    values = {name: word.text for name, word in part.environment.items()}
    if values.get("FI_PROVIDER") == "efa":
        return "efa"
    return "erdma" if "erdma" in values.get("NCCL_IB_HCA", "") else None
