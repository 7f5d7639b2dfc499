"""Conditions for the mark `when`: an image gets the validator only where its condition holds.

What is not measured may hold: the validator then says what it could not compare.
"""

from collections.abc import Callable

from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import Files, Libraries

Condition = Callable[[Inspection], bool]


def in_tree(holds: Callable[[Files, Libraries], object]) -> Condition:
    """Return the condition that `holds` is true of the image's files and libraries, or that they were not measured."""

    def condition(inspection: Inspection) -> bool:
        tree = inspection.measured.tree
        return tree is None or bool(holds(tree.files, tree.libraries))

    return condition


def names_component(component: str) -> Condition:
    """Return the condition that the image's label or its plan names a version of the component."""
    return lambda inspection: bool(
        inspection.subject.label(f"component.{component}") or inspection.expected.components.get(component)
    )


def is_image(inspection: Inspection) -> bool:
    """Return whether an image is validated, and no machine or environment on a disk."""
    return bool(inspection.subject.digest)
