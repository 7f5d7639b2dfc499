"""What tasks with --onto do first: measure the images that fabrics are added to."""

from collections.abc import Sequence

from rdma_images.core.progress import progress
from rdma_images.selection.project import Project


def measured(loaded: Project, targets: Sequence[str] | None, onto: str) -> Project:
    """Return the project with what --onto names, and the images measured that its targets are added to."""
    if not onto and not any(target.onto for target in loaded.matrix.targets.values()):
        return loaded
    from rdma_images.validate import measure_onto  # here, because measuring needs an engine

    return measure_onto.measured_project(loaded, targets, onto, progress)
