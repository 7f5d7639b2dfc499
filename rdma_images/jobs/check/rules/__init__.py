"""Rules for a part of a job: a small function each, with its id, its source and a fix.

A rule says nothing where it cannot know: of an instance type without facts, of a value that a template leaves open.
"""

from collections.abc import Iterator, Mapping, Sequence

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Fabric
from rdma_images.facts import facts_file
from rdma_images.facts.environment import Environment, Variable
from rdma_images.facts.instances import Instances, InstanceType
from rdma_images.facts.variables import Variables
from rdma_images.jobs import image_reports
from rdma_images.jobs.check.job_part import JobPart
from rdma_images.jobs.check.rules import counts, devices, images, transfers, variables
from rdma_images.jobs.check.rules.rule import EFA, ERDMA, CheckContext, FactTables, JobRule, Problem

__all__ = ["RULES", "check"]

RULES: tuple[JobRule, ...] = tuple(
    value
    for module in (counts, images, transfers, variables, devices)
    for value in vars(module).values()
    if isinstance(value, JobRule)
)
Types = Mapping[str, InstanceType | None]


def check(parts: Sequence[JobPart]) -> Iterator[tuple[JobPart, JobRule, Problem]]:
    """Yield what is wrong with the parts of jobs, in their order and that of the rules."""
    tables = _tables()
    versions = {part.image.text: image_reports.versions(part.image.text) for part in parts if part.image}
    types = {part.instance.text: _instance_type(part.instance.text, tables) for part in parts if part.instance}
    files: dict[str, list[JobPart]] = {}
    for part in parts:
        files.setdefault(part.file, []).append(part)
    for file_parts in files.values():
        fabrics = [_fabric(part, types) for part in file_parts]
        uses_fabric = any(_asked_for(part) or _fabric_of_variables(part) for part in file_parts)
        accelerated = any(fabrics) or any(part.gpus or part.kind != "kubernetes" for part in file_parts)
        for part, fabric in zip(file_parts, fabrics, strict=True):
            context = CheckContext(
                tables,
                node=types[part.instance.text] if part.instance else None,
                fabric=fabric or next(filter(None, fabrics), None),
                versions=versions[part.image.text] if part.image else {},
                uses_fabric=uses_fabric,
                accelerated=accelerated,
                mounts=tuple({mount: None for part in file_parts for mount in part.pod.mounts}),
            )
            for rule in RULES:
                yield from ((part, rule, problem) for problem in rule.check(part, context))


def _tables() -> FactTables:
    environment = facts_file.read(Environment)
    settings: dict[str, list[Variable]] = {}
    for row in environment.variables.values():
        if not row.image_only:
            settings.setdefault(row.name, []).append(row)
    return FactTables(facts_file.read(Instances), environment, settings, facts_file.read(Variables))


def _instance_type(name: str, tables: FactTables) -> InstanceType | None:
    try:
        return tables.instances.find(name)
    except RefusedError:
        return None


def _fabric(part: JobPart, types: Types) -> Fabric | None:
    node = types[part.instance.text] if part.instance else None
    return node.fabric if node else _asked_for(part) or _fabric_of_variables(part)


def _asked_for(part: JobPart) -> Fabric | None:
    """Return the fabric whose adapters a part asks for."""
    return "efa" if part.amount(EFA) else "erdma" if part.amount(ERDMA) else None


def _fabric_of_variables(part: JobPart) -> Fabric | None:
    """Return the fabric that only its own variables are for."""
    values = {name: word.text for name, word in part.environment.items()}
    if values.get("FI_PROVIDER") == "efa" or any(name.startswith(("FI_EFA_", "OFI_NCCL_")) for name in values):
        return "efa"
    return "erdma" if "erdma" in values.get("NCCL_IB_HCA", "") else None
