"""The images as this machine can rehearse them: on a base made here, where their own is unreachable."""

from collections.abc import Sequence
from dataclasses import replace

from rdma_images.components.base import BaseDetails
from rdma_images.core.pipeline import Component, Image
from rdma_images.inputs import preflight, sources
from rdma_images.selection.project import Project


def with_stand_in_bases(images: Sequence[Image], project: Project) -> tuple[Image, ...]:
    """Each image on its own base, or on that base's stand-in where only that can be had.

    A stand-in may have another Python, for which the wheels are then locked and installed; the image says so in its
    labels. Everything else stays as it was planned. Asks the network for the bases alone.
    """
    wanted = {image.axes["base"]: sources.base(image, project.facts) for image in images}
    supplies = preflight.supply(wanted.values(), project.mirrors, rehearse=True)
    stood_in = {base: s.address for base, s in zip(wanted, supplies, strict=True) if s.via == "stand-in"}
    return tuple(
        _on(image, stood_in[image.axes["base"]], project) if image.axes["base"] in stood_in else image
        for image in images
    )


def _on(image: Image, stand_in: str, project: Project) -> Image:
    """The image on `stand_in`, with that one's own Python."""
    base = image.components["base"]
    python = Component(
        "python", project.facts.bases.bases[stand_in].python, f"{stand_in}, which stands in for the base"
    )
    standing = replace(base, details=replace(image.details(BaseDetails), stand_in=stand_in))
    return replace(image, components={**image.components, "base": standing, "python": python})
