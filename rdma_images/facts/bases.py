"""Facts about the bases of images."""

from typing import Literal

from pydantic import Field

from rdma_images.facts.facts_file import Fact, FactsFile, Version


class Base(Fact):
    """A base: a distribution's release, or NVIDIA's CUDA image on top of one."""

    distribution: Literal["debian", "ubuntu"]
    release: Version  # "13", "24.04"
    codename: str
    python: Version  # the distribution's own python3
    glibc: Version
    kind: Literal["bootstrap", "pull"]  # made from Debian's archive where that can be done, or pulled
    image: str  # what is pulled, for either kind
    stand_in: str | None = None  # the base, made from Debian's archive, on which a rehearsal stands instead
    cuda: Version | None = None  # the CUDA toolkit in it
    remove: tuple[str, ...] = ()  # packages in the way of the fabric's own, and of what the wheels bring
    environment: dict[str, str] = Field(default_factory=dict)  # what it sets, and an image must not keep
    entrypoint: Literal["nvidia"] | None = None  # NVIDIA's own, which EFA's installer takes for an NGC image

    @property
    def system(self) -> str:
        """Return the distribution with its release, as "debian13"."""
        return self.distribution + self.release


class Bases(FactsFile):
    """facts/bases.yaml."""

    FILE = "bases.yaml"

    bases: dict[str, Base]
