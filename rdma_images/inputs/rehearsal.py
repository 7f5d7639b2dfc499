"""Put images on a base that this machine can rehearse with, where their own is unreachable."""

from collections.abc import Sequence
from dataclasses import replace

from rdma_images.components.base import BaseDetails
from rdma_images.core.image import Component, Image
from rdma_images.inputs import preflight, sources
from rdma_images.inputs.project import Project


def with_stand_in_bases(images: Sequence[Image], project: Project) -> tuple[Image, ...]:
    """Return each image on its base, or on its stand-in where only that can be had.

    A stand-in may have another Python, for which the wheels are then locked and installed; the image's labels name it.
    Everything else stays as it was planned. Asks the network for the bases alone.
    """
    base_sources = {
        image.axes["base"]: sources.source_of_base(image, project.facts) for image in images if not image.onto
    }
    supplies = preflight.find_supplies(base_sources.values(), project.mirrors, rehearse=True)
    stand_ins = {
        base: supply.address for base, supply in zip(base_sources, supplies, strict=True) if supply.via == "stand-in"
    }
    return tuple(
        _on_stand_in(image, stand_ins[image.axes["base"]], project)
        if image.axes["base"] in stand_ins and not image.onto
        else image
        for image in images
    )


def _on_stand_in(image: Image, stand_in: str, project: Project) -> Image:
    """Return the image on `stand_in`, with that one's own Python."""
    base = image.components["base"]
    python = Component(
        "python", project.facts.bases.bases[stand_in].python, f"{stand_in}, which stands in for the base"
    )
    rehearsed_base = replace(base, details=replace(image.details(BaseDetails), stand_in=stand_in))
    return replace(image, components={**image.components, "base": rehearsed_base, "python": python})
