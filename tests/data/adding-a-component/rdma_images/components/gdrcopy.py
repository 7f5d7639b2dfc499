"""GDRCopy, with which a CPU copies small messages from and to a GPU's memory."""

from collections.abc import Iterator
from dataclasses import dataclass

from rdma_images.components.definition import Axis, Combination, ComponentDefinition, download_source, sorted_versions
from rdma_images.core.image import Details, Image
from rdma_images.core.source import Source
from rdma_images.facts import Facts
from rdma_images.facts.origin import FactsFile, Row, Version

NAME = "gdrcopy"
URL = "https://github.com/NVIDIA/gdrcopy/archive/refs/tags/v{version}.tar.gz"


class Gdrcopy(FactsFile):
    """facts/gdrcopy.yaml."""

    FILE = "gdrcopy.yaml"

    releases: dict[Version, Row]


@dataclass(frozen=True)
class GdrcopyDetails(Details):
    """Where it is installed."""

    prefix: str


def _details(_: Combination, __: Facts) -> GdrcopyDetails:
    return GdrcopyDetails(prefix="/opt/gdrcopy")


def _sources(image: Image, _: Facts) -> Iterator[Source]:
    version = image.version(NAME)
    yield download_source(NAME, version, URL.format(version=version))


GDRCOPY = ComponentDefinition(
    name=NAME,
    axis=Axis(NAME, lambda facts: sorted_versions(facts.table(Gdrcopy).releases)),
    tag="gdr",
    is_bumped=True,
    details=_details,
    sources=_sources,
    source_names=(NAME,),
)
