"""Facts about running an image."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from rdma_images.core.image import Fabric
from rdma_images.core.yaml_file import YamlPath
from rdma_images.facts.facts_file import FactsFile, Row

# Each fabric, and a run without any.
REQUIRED_ROWS = ("efa", "erdma", "nothing")


class HostSetting(Row):
    """A setting of the host or orchestrator; `docker` is docker run's option, if any."""

    name: str  # "devices"
    value: str
    fabric: Fabric | None = None
    docker: str = ""
    why: str


class JobVariable(Row):
    """An environment variable that a job may need."""

    name: str
    value: str
    fabric: Fabric
    why: str


class RequiredNetwork(Row):
    """The only NCCL_NET (None: the plugin's name) and FI_PROVIDER to be used."""

    network: str | None = None
    provider: str | None = None


class Limitation(Row):
    """A limitation of images with `component` that a user may not expect, and what to do."""

    feature: str
    component: str = Field(alias="of")
    variant: Literal["runtime", "devel"] | None = None
    fabric: Fabric | None = None
    unless_packages: tuple[str, ...] = ()  # of Debian, any of which ends it
    unless_component: str = ""  # which ends it
    why: str
    fix: str


class RunRequirements(FactsFile):
    """facts/running.yaml."""

    FILE = "running.yaml"

    settings: dict[str, HostSetting]
    variables: dict[str, JobVariable]
    insist: dict[str, RequiredNetwork]
    limits: dict[str, Limitation]

    def problems(self) -> Iterator[tuple[YamlPath, str]]:
        """Yield also each network that images need and that has no row."""
        yield from super().problems()
        for name in REQUIRED_ROWS:
            if name not in self.insist:
                yield ("insist",), f"there is no {name!r}: add it"
