"""What is wrong with a piece of a job: a small function a rule, with its id, its source and what to do.

A rule says nothing where it cannot know: of an instance type without facts, of a value that a template leaves open.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rdma_images.core.errors import RefusedError
from rdma_images.core.pipeline import Fabric
from rdma_images.facts.instances import InstanceType
from rdma_images.jobs.check import image_reports
from rdma_images.jobs.check.foreign_job import JobFinding, Piece
from rdma_images.jobs.check.rules import counts, running, variables
from rdma_images.jobs.check.rules.rule import EFA, ERDMA, CheckContext, JobRule, Tables

__all__ = ["RULES", "Tables", "check"]

RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime")
RULES: tuple[JobRule, ...] = tuple(
    value for module in (counts, variables, running) for value in vars(module).values() if isinstance(value, JobRule)
)


def check(pieces: Sequence[Piece], tables: Tables) -> Iterator[JobFinding]:
    """Yield what is wrong with the pieces of jobs, in their order and that of the rules."""
    runtimes = {
        piece.settings["name"].text
        for piece in pieces
        if "name" in piece.settings and piece.what.startswith(RUNTIMES) and _asks_for_adapters(piece)
    }
    images = {piece.image.text for piece in pieces if piece.image}
    versions = {image: image_reports.versions(image) for image in images}
    files: dict[str, list[Piece]] = {}
    for piece in pieces:
        files.setdefault(piece.file, []).append(piece)
    for file_pieces in files.values():
        shared = _shared(file_pieces, tables)
        for piece in file_pieces:
            runtime = piece.settings.get("runtime")
            context = replace(
                shared,
                node=_node(piece, tables),
                fabric=_fabric(piece, tables) or shared.fabric,
                versions=versions[piece.image.text] if piece.image else {},
                runtime_adapters=runtime is not None and runtime.text in runtimes,
            )
            for rule in RULES:
                for word, problem, fix, *severity in rule.check(piece, context):
                    where = (f"{piece.file}:{word.line}",)
                    yield JobFinding(
                        rule.id, severity[0] if severity else rule.severity, where, problem, fix, rule.source
                    )


def _shared(pieces: Sequence[Piece], tables: Tables) -> CheckContext:
    """Return what the pieces of a file tell of each other: one that does not show its fabric has that of the others."""
    fabrics = [_fabric(piece, tables) for piece in pieces]
    mounts = (piece.settings["mounts"].text.split(":") for piece in pieces if "mounts" in piece.settings)
    return CheckContext(
        tables,
        node=None,
        fabric=next((fabric for fabric in fabrics if fabric), None),
        versions={},
        uses_fabric=any(_asks_for_adapters(piece) or _fabric_of_variables(piece) for piece in pieces),
        runtime_adapters=False,
        accelerated=any(fabrics) or any(piece.gpus or piece.kind != "kubernetes" for piece in pieces),
        mounts=tuple(dict.fromkeys(mount for paths in mounts for mount in paths)),
    )


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


def _asks_for_adapters(piece: Piece) -> bool:
    return any(name in resources for name in (EFA, ERDMA) for resources in (piece.requests, piece.limits))


def _fabric_of_variables(piece: Piece) -> Fabric | None:
    """Return the fabric that only its own variables are for."""
    if any(name.startswith(("FI_EFA_", "OFI_NCCL_")) for name in piece.environment):
        return "efa"
    values = {name: word.text for name, word in piece.environment.items()}
    if values.get("FI_PROVIDER") == "efa":
        return "efa"
    return "erdma" if "erdma" in values.get("NCCL_IB_HCA", "") else None
