"""Facts about instance types."""

from collections.abc import Mapping
from typing import Literal

from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import Fabric
from rdma_images.facts.facts_file import Fact, FactsFile, Version

# What Kubernetes calls an interface of a fabric.
INTERFACE_RESOURCES: Mapping[Fabric, str] = {"efa": "vpc.amazonaws.com/efa", "erdma": "aliyun/erdma"}


class InstanceType(Fact):
    """An instance type with GPUs and RDMA interfaces."""

    fabric: Fabric
    interfaces: int  # RDMA interfaces at most, one on each network card
    first_card: Literal["rdma", "ena"] = "rdma"  # whether network card 0 can carry an RDMA interface, or only ENA
    gpus: int
    gpu: str | None = None  # the vendor's name of it: "H200"
    gpu_memory: int  # GiB of one GPU
    memory: int  # GiB
    bandwidth: int  # Gb/s of all network cards together
    architecture: Literal["amd64", "arm64"] = "amd64"

    @property
    def cards(self) -> int:
        """Return the number of its network cards."""
        return self.interfaces + (self.first_card == "ena")

    def adapters_for(self, gpus: int) -> int:
        """Return the share of its RDMA interfaces for so many of its GPUs, rounded down, one at least."""
        return max(1, self.interfaces * gpus // self.gpus)


class NodeResources(Fact):
    """The resources of a node before anything is changed on it."""

    hugepages: int  # MiB, in pages of 2 MiB


class UnsettledType(Fact):
    """An instance type whose sources contradict each other or leave out what a job needs."""

    fabric: Fabric
    gpu: str | None = None  # as in InstanceType
    why: str


class Instances(FactsFile):
    """facts/instances.yaml."""

    FILE = "instances.yaml"

    nodes: dict[Fabric, NodeResources]
    types: dict[str, InstanceType]
    unsettled: dict[str, UnsettledType]

    def find(self, name: str) -> InstanceType:
        """Return the type called `name`, with or without "ml." and "ecs.".

        Raises RefusedError for an unknown type or incomplete facts; for a GPU, it lists the types that have it.
        """
        short_name = name.removeprefix("ml.")
        key = short_name if short_name in self.types or short_name in self.unsettled else f"ecs.{short_name}"
        if key in self.types:
            return self.types[key]
        if key in self.unsettled:
            row = self.unsettled[key]
            raise RefusedError(
                f"the hardware of the instance type {key} is not certain: {row.why} [{self.cite(row, 'why')}]\n"
                "look at a node of yours, and add a row to `types` in facts/instances.yaml"
            )
        gpu, rows = short_name.lower().replace("-", " "), self.types | self.unsettled  # as in "rtx-pro-4500"
        if having := [key for key, row in rows.items() if row.gpu and row.gpu.lower() == gpu]:
            types = ", ".join(having)
            raise RefusedError(f"{name} is a GPU, and no instance type\nchoose from those that have it: {types}")
        raise RefusedError(f"unknown instance type {name!r}\n{suggestion(short_name, self.types)}")


class Gpu(Fact):
    """One model of GPU."""

    capability: Version  # NVIDIA's compute capability, "8.6"


class Gpus(FactsFile):
    """facts/gpus.yaml; GPUs by the name that facts/instances.yaml gives them."""

    FILE = "gpus.yaml"

    gpus: dict[str, Gpu]
