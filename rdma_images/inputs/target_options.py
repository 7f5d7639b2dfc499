"""Find the images that the options of a task choose: --target, --all, --set."""

from collections.abc import Sequence
from dataclasses import replace

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.core.progress import progress
from rdma_images.inputs.project import Project
from rdma_images.plan.refusals import Plan


class RefusedPlanError(RefusedError):
    """Some of the requested combinations cannot work. Carries the plan, to show the reasons."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        refused, total = len(plan.refusals), len(plan.refusals) + len(plan.images)
        super().__init__(f"{refused} of {total} requested combinations {'are' if refused > 1 else 'is'} refused")

    def details(self) -> object:
        """Return refusals with rules, reasons, sources, and the nearest combination."""
        from rdma_images.plan import plan_table

        return plan_table.table(replace(self.plan, images=()))


def parse_pairs(
    pairs: Sequence[str] | None, option: str = "--set", form: str = "axis=value", may_be_empty: bool = False
) -> dict[str, str]:
    """Return the pairs as a dict. Raises RefusedError for another form, and for two values of one name."""
    values: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not (name and equals and (value or may_be_empty)):
            example = f", as in {option} pytorch=2.14.1" if option == "--set" else ""
            raise RefusedError(f"{option} {pair}: not of the form {form}\nwrite {option} {form}{example}")
        if values.get(name, value) != value:
            raise RefusedError(f"{option} gives {name} two values, {values[name]} and {value}\nremove one of them")
        values[name] = value
    return values


def chosen_plan(
    project: Project, targets: Sequence[str] | None, all_rows: bool, pairs: Sequence[str] | None, rehearse: bool = False
) -> Plan:
    """Return the plan of the chosen images; with `rehearse`, on bases that can be had."""
    from rdma_images.plan import planner  # here, for the same reason as in project.py

    changes = parse_pairs(pairs)
    plan = planner.plan(project.matrix, project.facts, targets or (), all_rows, changes, project.measure_base)
    for name in plan.unmeasured:
        progress(f"{name} is left out: {project.matrix.target(name).onto} was not measured on this machine")
    if not rehearse:
        return plan
    from rdma_images.inputs import availability  # here, because a plan needs none of it

    return replace(plan, images=availability.with_stand_in_bases(plan.images, project.facts, project.mirrors))


def chosen_images(
    project: Project, targets: Sequence[str] | None, all_rows: bool, pairs: Sequence[str] | None, rehearse: bool = False
) -> tuple[Image, ...]:
    """Return the chosen images. Raises RefusedPlanError if one cannot work."""
    plan = chosen_plan(project, targets, all_rows, pairs, rehearse)
    if plan.refusals:
        raise RefusedPlanError(plan)
    return plan.images
