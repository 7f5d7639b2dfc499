"""The files that every step reads: the matrix, the facts, and the mirrors of this machine.

The command line imports this for every task: what reads the files takes 0.1 s, and is imported when they are read.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rdma_images.facts import Facts
    from rdma_images.inputs.mirrors import Mirrors
    from rdma_images.plan.matrix import Matrix
    from rdma_images.plan.onto import MeasureBase


@dataclass(frozen=True)
class Project:
    """The project's own files and the user's mirrors, which are read when asked for."""

    matrix: "Matrix"
    facts: "Facts"
    measure_base: "MeasureBase | None" = None  # for its plans; None: they know earlier measurements alone

    @cached_property
    def mirrors(self) -> "Mirrors":
        """Return the mirrors of this machine."""
        from rdma_images.inputs import mirrors  # here, because a plan needs none

        return mirrors.load()


def load(measure_base: "MeasureBase | None" = None) -> Project:
    """Return the project's files and this machine's mirrors.

    Raises RefusedError with file and line for what cannot be read.
    """
    from rdma_images import facts
    from rdma_images.plan import matrix

    return Project(matrix.load(), facts.load(), measure_base)
