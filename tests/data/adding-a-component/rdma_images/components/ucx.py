"""UCX, through which MPI and NIXL use verbs."""

from dataclasses import dataclass

from rdma_images.components import efa_installer, erdma_apt
from rdma_images.components.definition import Axis, Combination, ComponentDefinition, release_source, sorted_versions
from rdma_images.core.image import Details
from rdma_images.facts import Facts
from rdma_images.facts.facts_file import Fact, FactsFile, Version

NAME = "ucx"
URL = "https://github.com/openucx/ucx/releases/download/v{version}/ucx-{version}.tar.gz"


class Ucx(FactsFile):
    """facts/ucx.yaml."""

    FILE = "ucx.yaml"

    releases: dict[Version, Fact]


@dataclass(frozen=True)
class UcxDetails(Details):
    """Where it is installed."""

    prefix: str


def _details(_: Combination, __: Facts) -> UcxDetails:
    return UcxDetails(prefix="/opt/ucx")


UCX = ComponentDefinition(
    name=NAME,
    axis=Axis(NAME, lambda facts: sorted_versions(facts.table(Ucx).releases)),
    tag="ucx",
    is_optional=True,
    stage_after=(efa_installer.NAME, erdma_apt.NAME),
    details=_details,
    sources=lambda image, _: release_source(image, NAME, URL),
    source_names=(NAME,),
)
