"""Images for tests of single steps: the planned efa-pytorch, with what a test changes of it."""

from dataclasses import replace
from functools import cache

from rdma_images import facts, matrix, plan
from rdma_images.model import Component, Image


@cache
def planned() -> Image:
    """efa-pytorch on debian13 with torch 2.15.0, whatever the default row is; its lock has only what torch brings."""
    axes = {"base": "debian13", "pytorch": "2.15.0", "efa-installer": "1.50.0"}
    (image,) = plan.plan(matrix.load(), facts.load(), ["efa-pytorch"], changes=axes).images
    return replace(image, python_packages=())


def image(components: dict[str, Component | None] | None = None, **changes: object) -> Image:
    """The planned image; `components` are added to its own, None takes one away, `changes` are fields."""
    own = planned()
    base = changes.get("axes", own.axes)["base"]
    merged = {**own.components, "base": replace(own.components["base"], version=base), **(components or {})}
    kept = {name: component for name, component in merged.items() if component}
    return replace(own, **{**changes, "components": kept})
