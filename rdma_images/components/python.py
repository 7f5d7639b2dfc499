"""Python: the base's own."""

from rdma_images.components import base
from rdma_images.components.definition import Axis, ComponentDefinition, sorted_versions

NAME = "python"
PYTHON = ComponentDefinition(
    name=NAME,
    position=20,
    axis=Axis(
        NAME,
        lambda facts: sorted_versions(row.python for row in facts.bases.bases.values()),
        decided_by=base.NAME,
        version_from=lambda facts, values: facts.bases.bases[values[base.NAME]].python,
    ),
    role="foundation",
    tag="py",
    decides_wheels=True,
    must_be_measured=True,
)
