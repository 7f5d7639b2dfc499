"""Facts about nccl-tests."""

from typing import Literal

from pydantic import Field

from rdma_images.core.image import Fabric
from rdma_images.facts.origin import FactsFile, Row, Version

Backend = Literal["PROXY", "GDAKI", "GPI", "EFA_GDA"]


class NcclTestsRelease(Row):
    """One release."""

    tested_nccl: tuple[str, ...]


class Backends(Row):
    """The backends of NCCL's GPU-initiated networking that a fabric has."""

    used: tuple[Backend, ...]
    only_on: dict[Backend, tuple[str, ...]] = Field(default_factory=dict)  # instance types, where not on all


class DefaultMeasurement(Row):
    """The defaults of a measurement with nccl-tests."""

    program: str
    arguments: tuple[str, ...]


class ProgramNames(Row):
    """Its programs."""

    names: tuple[str, ...]


class NcclTests(FactsFile):
    """facts/nccl-tests.yaml."""

    FILE = "nccl-tests.yaml"

    measure: DefaultMeasurement
    programs: ProgramNames
    releases: dict[Version, NcclTestsRelease]
    backends: dict[Fabric, Backends]
