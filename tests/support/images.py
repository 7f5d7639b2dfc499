"""Images for tests of single steps: the planned efa-pytorch, with what a test changes of it."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from rdma_images import facts
from rdma_images.core.pipeline import Component, Fabric, Image, Platform
from rdma_images.plan import matrix, planner


@cache
def planned() -> Image:
    """efa-pytorch on debian13 with torch 2.15.0, whatever the default row is; its lock has only what torch brings."""
    axes = {"base": "debian13", "pytorch": "2.15.0", "efa-installer": "1.50.0"}
    (image,) = planner.plan(matrix.load(), facts.load(), ["efa-pytorch"], changes=axes).images
    return replace(image, python_packages=())


def image(
    components: Mapping[str, Component | None] | None = None,
    *,
    target: str = "",
    platform: Platform | None = None,
    fabric: Fabric | None = None,
    axes: dict[str, str] | None = None,
    python_packages: tuple[str, ...] = (),
) -> Image:
    """Return the planned image; `components` are added to its own, None takes one away, the others are its fields."""
    own = planned()
    axes = axes or own.axes
    base = axes["base"]
    merged = {**own.components, "base": replace(own.components["base"], version=base), **(components or {})}
    kept = {name: component for name, component in merged.items() if component}
    return replace(
        own,
        target=target or own.target,
        platform=platform or own.platform,
        fabric=fabric or own.fabric,
        axes=axes,
        components=kept,
        python_packages=python_packages,
    )
