"""Facts about running an image."""

from typing import Literal

from pydantic import Field

from rdma_images.core.image import Fabric
from rdma_images.facts.facts_file import Fact, FactsFile, Needs


class HostSetting(Fact):
    """A setting of the host or orchestrator; `docker` is docker run's option, if any."""

    name: str  # "devices"
    value: str
    fabric: Fabric | None = None
    docker: str = ""
    why: str


class JobVariable(Fact):
    """An environment variable that a job may need."""

    name: str
    value: str
    fabric: Fabric
    why: str


class RequiredNetwork(Fact):
    """The only NCCL_NET (None: the plugin's name) and FI_PROVIDER to be used."""

    network: str | None = None
    provider: str | None = None


class ComponentLimitation(Fact):
    """A limitation of images with `component` that a user may not expect, and what to do."""

    feature: str
    component: str
    variant: Literal["runtime", "devel"] | None = None
    fabric: Fabric | None = None
    unless_packages: tuple[str, ...] = ()  # of Debian, any of which ends it
    unless_needs: Needs = Field(default_factory=dict)  # all of which, met, end it
    why: str
    fix: str


class RunRequirements(FactsFile):
    """facts/running.yaml."""

    FILE = "running.yaml"

    settings: dict[str, HostSetting]
    variables: dict[str, JobVariable]
    required_networks: dict[str, RequiredNetwork]  # by fabric
    without_fabric: RequiredNetwork  # of a run over TCP
    limitations: dict[str, ComponentLimitation]
