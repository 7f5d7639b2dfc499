"""Rules about the axes themselves: a target has its own axes, and all that these need."""

from collections.abc import Iterator

from rdma_images import components
from rdma_images.components import aws_ofi_nccl
from rdma_images.facts import Facts
from rdma_images.plan import axes
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.rules.plan_rule import Reason, rule


@rule("axis-of-target")
def target_has_axes(candidate: Candidate, _: Facts) -> Reason | None:
    """Refuse an axis that neither is in the target's default row nor follows from it."""
    if not candidate.foreign:
        return None
    target_axes = [axis for axis in candidate.axes if axis not in candidate.foreign]
    text = f"{candidate.target} has no {' and no '.join(candidate.foreign)}; it has {', '.join(target_axes)}"
    return Reason(text, "matrix.yaml")


@rule("axis-undecided")
def deciding_axis_exists(candidate: Candidate, _: Facts) -> Reason | None:
    """Refuse an axis that is decided by one which the target does not have."""
    axis = next((axis for axis in candidate.undecided if axis not in candidate.foreign), None)
    if axis is None:
        return None
    text = f"{candidate.target} has no {axes.BY_NAME[axis].decided_by} that could decide its {axis}: choose a version"
    return Reason(text, "matrix.yaml")


@rule("incomplete")
def target_is_complete(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require in the image what a component is compiled for or runs on."""
    lacking = next((pair for pair in _needs(candidate, facts) if pair[1] not in candidate.axes), None)
    if lacking is None:
        return None
    component, missing_component = lacking
    return Reason(
        f"{component} needs {missing_component}, which {candidate.target} does not have: add it to its default row",
        "matrix.yaml",
    )


def _needs(candidate: Candidate, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield a component of the image, and the axis that it needs."""
    target_axes = {axis for axis in candidate.axes if axis not in candidate.foreign}
    for component in reversed(components.ALL):  # what stands on most is named first
        yield from ((component.name, need) for need in component.needs if component.name in target_axes)
    if candidate["variant"] == "devel":
        yield "a devel image", "cuda"
    is_chosen = candidate.axes.get("aws-ofi-nccl", "efa-installer") != "efa-installer"
    if is_chosen and {"aws-ofi-nccl", "efa-installer"} <= target_axes and aws_ofi_nccl.is_from_source(candidate, facts):
        yield "aws-ofi-nccl from source", "cuda"
