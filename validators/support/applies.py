"""Which images get the validators of a folder, and the conditions for the mark `when` of a single one.

A condition on an unmeasured value counts as true: the validator then says what it could not compare.
"""

from collections.abc import Callable

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import Files, Libraries

Condition = Callable[[Inspection], bool]


def for_fabric(*fabrics: str) -> Callable[[Inspection], str]:
    """Return what gives the reason of an image that is for one of `fabrics`; "" for another."""

    def reason(inspection: Inspection) -> str:
        fabric = inspection.expected.fabric
        return f"for {FABRIC_TITLES[fabric]}: {inspection.expected.reason}" if fabric in fabrics else ""

    return reason


def with_component(inspection: Inspection, name: str) -> str:
    """Return the reason of an image with a component of ours, as planned or by its label; "" without it."""
    if version := inspection.expected.components.get(name):
        return f"planned with {name} {version}"
    version = inspection.subject.label(f"component.{name}")
    return f"its label says {name} {version}" if version else ""


def with_python_package(inspection: Inspection, name: str) -> str:
    """Return the reason of an image in which the Python package `name` is installed; "" where it is not."""
    packages = inspection.measured.packages
    version = dict(packages.installed).get(name) if packages else None
    return f"it has the package {name} {version}" if version else ""


def in_tree(holds: Callable[[Files, Libraries], object]) -> Condition:
    """Return the condition that `holds` is true of the image's files and libraries, or that they were not measured."""

    def condition(inspection: Inspection) -> bool:
        tree = inspection.measured.tree
        return tree is None or bool(holds(tree.files, tree.libraries))

    return condition


def names_component(component: str) -> Condition:
    """Return the condition that the image's label or its plan names a version of the component."""
    return lambda inspection: bool(with_component(inspection, component))


def is_image(inspection: Inspection) -> bool:
    """Return whether an image is validated, and no machine or environment on a disk."""
    return bool(inspection.subject.digest)
