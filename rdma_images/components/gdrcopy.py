"""GDRCopy, with which a CPU reads and writes a GPU's memory: NCCL's GPU-initiated networking needs it."""

from dataclasses import dataclass

from pydantic import Field

from rdma_images.components import erdma_apt
from rdma_images.components.definition import Axis, ComponentDefinition, release_source, sorted_versions
from rdma_images.core.image import Details
from rdma_images.core.yaml_file import Strict
from rdma_images.facts.fabric_software import EFA_INSTALLER as INSTALLER
from rdma_images.facts.facts_file import Fact, FactsFile, Needs, Version

NAME = "gdrcopy"
PREFIX = "/opt/gdrcopy"
# Source: the tags of github.com/NVIDIA/gdrcopy; it publishes no checksums, the lock has them.
URL = "https://github.com/NVIDIA/gdrcopy/archive/refs/tags/v{version}.tar.gz"


class GinRequest(Strict):
    """The variables and packages that ask for GPU-initiated networking."""

    variables: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()  # names in the normal form
    unless_packages: tuple[str, ...] = ()  # packages or repositories with a module of that name which needs no NCCL


class Gin(Fact):
    """The versions that GPU-initiated networking needs over EFA."""

    needs: Needs
    asked_by: GinRequest = Field(default_factory=GinRequest)


class Gdrcopy(FactsFile):
    """facts/gdrcopy.yaml."""

    FILE = f"{NAME}.yaml"

    releases: dict[Version, Fact]
    gin: Gin


@dataclass(frozen=True)
class GdrcopyDetails(Details):
    """Where it is installed."""

    prefix: str


GDRCOPY = ComponentDefinition(
    name=NAME,
    position=65,
    axis=Axis(NAME, lambda facts: sorted_versions(facts.table(Gdrcopy).releases)),
    tag="gdr",
    is_optional=True,
    stage_after=(INSTALLER, erdma_apt.NAME),
    details=lambda *_: GdrcopyDetails(prefix=PREFIX),
    sources=lambda image, _: release_source(image, NAME, URL),
    source_names=(NAME,),
)
