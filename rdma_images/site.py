"""What every step on this machine shares, read once."""

from dataclasses import dataclass
from functools import cached_property

from rdma_images import facts, matrix, mirrors
from rdma_images.facts import Facts
from rdma_images.matrix import Matrix
from rdma_images.mirrors import Mirrors


@dataclass(frozen=True)
class Site:
    """The project's own files and the user's mirrors. Mirrors are read when they are first asked for."""

    matrix: Matrix
    facts: Facts

    @cached_property
    def mirrors(self) -> Mirrors:
        """The mirrors of this machine."""
        return mirrors.load()


def site() -> Site:
    """This checkout on this machine. Raises RefusedError with file and line for what cannot be read."""
    return Site(matrix.load(), facts.load())
