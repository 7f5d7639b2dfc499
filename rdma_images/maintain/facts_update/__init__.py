"""Compare facts about wheels with the package index, without downloading wheels."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.facts import Facts
from rdma_images.inputs import package_index
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.maintain.facts_update import nccl_wheels, pages, torch_wheels
from rdma_images.maintain.facts_update.index_client import IndexClient
from rdma_images.maintain.facts_update.pages import ReleaseNews
from rdma_images.maintain.facts_update.reading import Reading, add_rows
from rdma_images.plan import axes
from rdma_images.plan.matrix import Matrix

__all__ = ["Reading", "ReleaseNews", "Update", "update", "write"]


@dataclass(frozen=True)
class Update:
    """The readings of the sources, and the news of the makers' pages."""

    readings: tuple[Reading, ...]
    news: tuple[ReleaseNews, ...]

    @property
    def new(self) -> tuple[Reading, ...]:
        """Return the versions that the facts do not have."""
        return tuple(reading for reading in self.readings if reading.recorded is None)

    @property
    def changed(self) -> tuple[Reading, ...]:
        """Return the versions of which the facts say something else."""
        return tuple(reading for reading in self.readings if reading.changes)


def update(
    facts: Facts,
    matrix: Matrix,
    mirrors: Mirrors,
    everything: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Update:
    """Read the releases that the facts lack, and those of the matrix again.

    Raises RdmaImagesError where the index does not answer; a maker's page that does not is a line of the result.
    """
    index_client = IndexClient(package_index.index_address(), mirrors)
    torches = list(facts.torch.releases) if everything else _matrix_versions(matrix, "pytorch")
    pinned = [facts.torch.releases[version].nccl for version in torches]
    nccls = list(facts.nccl.releases) if everything else [*pinned, *_matrix_versions(matrix, "nccl")]
    readings: list[Reading] = []
    for reading in torch_wheels.readings(index_client, facts, dict.fromkeys(torches)):
        progress(f"torch {reading.version}: {_outcome(reading)}")
        readings.append(reading)
    for reading in nccl_wheels.readings(index_client, facts, mirrors, dict.fromkeys(nccls)):
        progress(f"NCCL {reading.version}: {_outcome(reading)}")
        readings.append(reading)
    return Update(tuple(readings), tuple(pages.news(facts, mirrors)))


def write(facts_update: Update, folder: Path = paths.FACTS) -> tuple[Reading, ...]:
    """Add a row for each new version and return them; changed ones are left to people.

    Raises RefusedError for facts that came in a wheel.
    """
    if paths.INSTALLED and facts_update.new:
        raise RefusedError(
            f"{folder}: the facts that came with the tool are not changed\n"
            "add the rows to facts/ of your own folder, or update the tool"
        )
    add_rows(folder, facts_update.new, datetime.now(UTC).date())
    return facts_update.new


def _matrix_versions(matrix: Matrix, axis: str) -> list[str]:
    """Return the versions of an axis that matrix.yaml names, each once."""
    values = (row[axis] for target in matrix.targets.values() for row in target.rows() if axis in row)
    return [value for value in dict.fromkeys(values) if value != axes.BY_NAME[axis].decided_by]


def _outcome(reading: Reading) -> str:
    if reading.recorded is None:
        return "new"
    return "differs from the facts" if reading.changes else "as the facts say"
