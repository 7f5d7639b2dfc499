"""Images for tests of single steps: the planned efa-pytorch, with a test's changes."""

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from rdma_images import facts
from rdma_images.core.image import Component, Fabric, Image, Platform
from rdma_images.plan import matrix, planner


@cache
def _default_image() -> Image:
    """Return efa-pytorch on debian13 with torch 2.15.0, whatever the default row is."""
    axes = {"base": "debian13", "pytorch": "2.15.0", "efa-installer": "1.50.0"}
    (image,) = planner.plan(matrix.load(), facts.load(), ["efa-pytorch"], changes=axes).images
    return replace(image, python_packages=())


def planned_image(
    components: Mapping[str, Component | None] | None = None,
    *,
    target: str = "",
    platform: Platform | None = None,
    fabric: Fabric | None = None,
    axes: dict[str, str] | None = None,
    python_packages: tuple[str, ...] = (),
) -> Image:
    """Return the planned efa-pytorch with other components (None removes one) and fields."""
    default = _default_image()
    axes = axes or default.axes
    base = axes["base"]
    merged = {**default.components, "base": replace(default.components["base"], version=base), **(components or {})}
    present = {name: component for name, component in merged.items() if component}
    return replace(
        default,
        target=target or default.target,
        platform=platform or default.platform,
        fabric=fabric or default.fabric,
        axes=axes,
        components=present,
        python_packages=python_packages,
    )


def with_axes(image: Image, **axes: str) -> Image:
    """Return the same image with other values of some axes, as the plan would have it."""
    versions = {name: value for name, value in axes.items() if name in image.components}
    components = image.components | {
        name: dataclasses.replace(image.components[name], version=value) for name, value in versions.items()
    }
    tag = image.tag
    for name, value in versions.items():
        tag = tag.replace(image.version(name), value)
    platform: Platform = "linux/arm64" if axes.get("platform") == "linux/arm64" else image.platform
    tag += "-arm64" if platform == "linux/arm64" else ""
    return dataclasses.replace(
        image, id=f"{image.target}-{tag}", tag=tag, platform=platform, axes=image.axes | axes, components=components
    )
