"""The base: a distribution's release, or NVIDIA's CUDA image on top of one."""

from dataclasses import dataclass, field
from typing import get_args

from rdma_images.components import cuda
from rdma_images.components.definition import Axis, Combination, ComponentDefinition
from rdma_images.core import versions
from rdma_images.core.image import TEMPLATE_ONLY, Details, Fabric
from rdma_images.facts import Facts

NAME = "base"


@dataclass(frozen=True)
class BaseDetails(Details):
    """A base image."""

    distribution: str
    release: str
    codename: str
    glibc: str
    kind: str  # "bootstrap" or "pull"
    image: str  # what is pulled
    cuda: str | None  # the version of the toolkit in it
    entrypoint: str | None
    removed_packages: tuple[str, ...] = field(metadata=TEMPLATE_ONLY)  # packages
    unset_variables: tuple[str, ...] = field(metadata=TEMPLATE_ONLY)  # variables that an image must not keep
    stand_in: str | None = None  # the base on which a rehearsal really builds


def _known_bases(facts: Facts) -> list[str]:
    """Return the bases by distribution and release, the plain one before the one with CUDA."""
    bases = facts.bases.bases
    return sorted(
        bases, key=lambda b: (bases[b].distribution, versions.sort_key(bases[b].release), bases[b].cuda or "", b)
    )


def _details(combination: Combination, facts: Facts) -> BaseDetails:
    base = facts.bases.bases[combination[NAME]]
    return BaseDetails(
        distribution=base.distribution,
        release=base.release,
        codename=base.codename,
        glibc=base.glibc,
        kind=base.kind,
        image=base.image,
        cuda=base.cuda,
        entrypoint=base.entrypoint,
        program_folders=(f"{cuda.FOLDER}/bin",) if base.cuda else (),
        removed_packages=base.remove,
        unset_variables=tuple(base.environment),
    )


BASE = ComponentDefinition(
    name=NAME,
    position=10,
    axis=Axis(NAME, _known_bases),
    role="foundation",
    tag="",
    details=_details,
    required_for=get_args(Fabric),
    must_be_measured=True,
    matches_measured=lambda planned, measured: planned.endswith(measured),
)
