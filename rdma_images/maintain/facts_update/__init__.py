"""Find releases that the facts lack in the package index and on the makers' pages.

A release that is published does not change: what the facts have is not read again.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import Progress, silent
from rdma_images.facts import Facts
from rdma_images.inputs import package_index
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.maintain.facts_update import nccl_wheels, pages, torch_wheels
from rdma_images.maintain.facts_update.index_client import IndexClient
from rdma_images.maintain.facts_update.pages import ReleaseNews
from rdma_images.maintain.facts_update.reading import Reading, add_rows


@dataclass(frozen=True)
class Update:
    """The releases that the facts lack, and the news of the makers' pages."""

    readings: tuple[Reading, ...]
    news: tuple[ReleaseNews, ...]


def update(facts: Facts, mirrors: Mirrors, progress: Progress = silent) -> Update:
    """Read the releases that the facts lack.

    Raises RdmaImagesError where the index does not answer; a maker's page that does not is a line of the result.
    """
    index_client = IndexClient(package_index.index_address(), mirrors)
    readings = [*torch_wheels.readings(index_client, facts), *nccl_wheels.readings(index_client, facts, progress)]
    return Update(tuple(readings), tuple(pages.news(facts, mirrors)))


def write(facts_update: Update, folder: Path = paths.FACTS) -> None:
    """Add a row for each new version. Raises RefusedError for facts that came in a wheel."""
    if paths.INSTALLED and facts_update.readings:
        raise RefusedError(
            f"{folder}: the facts that came with the tool are not changed\n"
            "add the rows to facts/ of your own folder, or update the tool"
        )
    add_rows(folder, facts_update.readings, datetime.now(UTC).date())
