"""What is wrong with a piece of a job: a small function a rule, with its id, its source and what to do.

A rule says nothing where it cannot know: of an instance type without facts, of a value that a template leaves open.
"""

from collections.abc import Iterator, Sequence

from rdma_images.core.errors import RefusedError
from rdma_images.core.pipeline import Fabric
from rdma_images.facts.instances import InstanceType
from rdma_images.jobs.check import measured
from rdma_images.jobs.check.foreign_job import Finding, Piece
from rdma_images.jobs.check.rules import counts, running, variables
from rdma_images.jobs.check.rules.rule import EFA, ERDMA, Known, Rule, Tables

__all__ = ["RULES", "Rule", "Tables", "check"]

RULES: tuple[Rule, ...] = tuple(
    found for module in (counts, variables, running) for found in vars(module).values() if isinstance(found, Rule)
)


def check(piece: Piece, pieces: Sequence[Piece], tables: Tables) -> Iterator[Finding]:
    """Yield what is wrong with one of the pieces, in the order of the rules.

    A piece that does not show its fabric, a launcher for example, has that of the others in its file.
    """
    beside = [piece, *(other for other in pieces if other.file == piece.file)]
    fabric = next((fabric for other in beside if (fabric := _fabric(other, tables))), None)
    mounts = (other.settings["mounts"].text.split(":") for other in beside if "mounts" in other.settings)
    known = Known(
        tables,
        _node(piece, tables),
        fabric,
        versions=measured.versions(piece.image.text) if piece.image else {},
        uses_fabric=any(_asks_for_adapters(other) or _fabric_of_variables(other) for other in beside),
        runtime_adapters=any(_asks_for_adapters(other) for other in pieces if _is_runtime_of(other, piece)),
        accelerated=any(other.gpus or other.kind != "kubernetes" or _fabric(other, tables) for other in beside),
        mounts=tuple(mount for paths in mounts for mount in paths),
    )
    for rule in RULES:
        for word, what, fix, *severity in rule.check(piece, known):
            where = (f"{piece.file}:{word.line}",)
            yield Finding(rule.id, severity[0] if severity else rule.severity, where, what, fix, rule.source)


def _node(piece: Piece, tables: Tables) -> InstanceType | None:
    try:
        return tables.instances.find(piece.instance.text) if piece.instance else None
    except RefusedError:
        return None


def _fabric(piece: Piece, tables: Tables) -> Fabric | None:
    if node := _node(piece, tables):
        return node.fabric
    if EFA in piece.requests or EFA in piece.limits:
        return "efa"
    if piece.kind == "arena" or ERDMA in piece.limits or ERDMA in piece.requests:
        return "erdma"
    return _fabric_of_variables(piece)


def _is_runtime_of(other: Piece, piece: Piece) -> bool:
    """Whether a TrainJob names the runtime."""
    name, wanted = other.settings.get("name"), piece.settings.get("runtime")
    is_runtime = other.what.startswith(("TrainingRuntime", "ClusterTrainingRuntime"))
    return is_runtime and name is not None and wanted is not None and name.text == wanted.text


def _asks_for_adapters(piece: Piece) -> bool:
    return any(name in resources for name in (EFA, ERDMA) for resources in (piece.requests, piece.limits))


def _fabric_of_variables(piece: Piece) -> Fabric | None:
    """The fabric that only its own variables are for."""
    if any(name.startswith(("FI_EFA_", "OFI_NCCL_")) for name in piece.environment):
        return "efa"
    values = {name: word.text for name, word in piece.environment.items()}
    if values.get("FI_PROVIDER") == "efa":
        return "efa"
    return "erdma" if "erdma" in values.get("NCCL_IB_HCA", "") else None
