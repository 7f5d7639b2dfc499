"""What is wrong with a piece of a job: a small function a rule, with its id, its source and what to do.

A rule says nothing where it cannot know: of an instance type without facts, of a value that a template leaves open.
"""

from collections.abc import Iterator, Sequence

from rdma_images.core.errors import RefusedError
from rdma_images.core.pipeline import Fabric
from rdma_images.facts.instances import InstanceType
from rdma_images.jobs.check.foreign_job import Finding, Piece
from rdma_images.jobs.check.rules import counts, running, variables
from rdma_images.jobs.check.rules.rule import EFA, ERDMA, Known, Rule, Tables

__all__ = ["RULES", "Rule", "Tables", "check"]

RULES: tuple[Rule, ...] = tuple(
    found for module in (counts, variables, running) for found in vars(module).values() if isinstance(found, Rule)
)


def check(piece: Piece, pieces: Sequence[Piece], tables: Tables) -> Iterator[Finding]:
    """What is wrong with one of the pieces, in the order of the rules.

    A piece that does not show its fabric, a launcher for example, has that of the others in its file.
    """
    node = _node(piece, tables)
    beside = [piece, *(one for one in pieces if one.file == piece.file)]
    fabric = next((found for one in beside if (found := _fabric(one, tables))), None)
    mounts = (one.settings["mounts"].text.split(":") for one in beside if "mounts" in one.settings)
    known = Known(tables, node, fabric, tuple(mount for some in mounts for mount in some))
    for one in RULES:
        for word, what, fix in one.check(piece, known):
            yield Finding(one.id, one.severity, f"{piece.file}:{word.line}", what, fix, one.source)


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
    return "erdma" if piece.kind == "arena" or ERDMA in piece.limits or ERDMA in piece.requests else None
