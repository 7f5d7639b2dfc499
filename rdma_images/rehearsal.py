"""The images as this machine can rehearse them: on a base made here, where their own is out of reach."""

from collections.abc import Sequence
from dataclasses import replace

from rdma_images import sources, supply
from rdma_images.model import Component, Image
from rdma_images.site import Site


def stand(images: Sequence[Image], site: Site) -> tuple[Image, ...]:
    """Each image on its own base, or on that base's stand-in where only that can be had.

    A stand-in may have another Python, for which the wheels are then locked and installed; the image says so in its
    labels. Everything else stays as it was planned. Asks the network for the bases alone.
    """
    wanted = {image.axes["base"]: sources.base(image, site.facts) for image in images}
    supplies = supply.supply(wanted.values(), site.mirrors, rehearse=True)
    stood_in = {base: s.address for base, s in zip(wanted, supplies, strict=True) if s.via == "stand-in"}
    return tuple(
        _on(image, stood_in[image.axes["base"]], site) if image.axes["base"] in stood_in else image for image in images
    )


def _on(image: Image, stand_in: str, site: Site) -> Image:
    """The image on `stand_in`, with that one's own Python."""
    base = image.components["base"]
    python = Component("python", site.facts.bases.bases[stand_in].python, f"{stand_in}, which stands in for the base")
    standing = replace(base, details={**base.details, "stand-in": stand_in})
    return replace(image, components={**image.components, "base": standing, "python": python})
