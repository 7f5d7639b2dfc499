"""From what is typed after a task's name to what it means."""

from collections.abc import Sequence
from dataclasses import replace

from rdma_images import plan as planning
from rdma_images import plan_view
from rdma_images.errors import RefusedError
from rdma_images.model import Image, Plan
from rdma_images.site import Site


class RefusedPlanError(RefusedError):
    """What was asked for has combinations that cannot work. Carries the plan, so that its reasons can be shown."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        refused, all_ = len(plan.refusals), len(plan.refusals) + len(plan.images)
        super().__init__(f"{refused} of {all_} combinations asked for {'are' if refused > 1 else 'is'} refused")

    def details(self) -> object:
        """Each refusal with its rules, reasons and sources, and the nearest combination that works."""
        return plan_view.refusals(self.plan)


def changes(pairs: Sequence[str] | None, option: str = "--set", form: str = "axis=value") -> dict[str, str]:
    """`--set axis=value …` as axis -> value; `option` and `form` are what errors call them.

    Raises RefusedError for what is not of that form.
    """
    chosen: dict[str, str] = {}
    for pair in pairs or ():
        axis, equals, value = pair.partition("=")
        if not (axis and equals and value):
            example = f", as in {option} pytorch=2.14.1" if option == "--set" else ""
            raise RefusedError(f"{option} {pair}: write {form}{example}")
        if chosen.get(axis, value) != value:
            raise RefusedError(f"{option} gives {axis} twice, {chosen[axis]} and {value}: leave one out")
        chosen[axis] = value
    return chosen


def plan(
    site: Site, targets: Sequence[str] | None, everything: bool, pairs: Sequence[str] | None, rehearse: bool = False
) -> Plan:
    """What would be built, with `rehearse` as it can be rehearsed on this machine, and what is refused."""
    answer = planning.plan(site.matrix, site.facts, targets or (), everything, changes(pairs))
    if not rehearse:
        return answer
    from rdma_images import rehearsal  # it asks the network, which a plan otherwise has no need to import

    return replace(answer, images=rehearsal.stand(answer.images, site))


def images(
    site: Site, targets: Sequence[str] | None, everything: bool, pairs: Sequence[str] | None, rehearse: bool = False
) -> tuple[Image, ...]:
    """The images asked for. Raises RefusedPlanError where one of them cannot work: then nothing is begun."""
    answer = plan(site, targets, everything, pairs, rehearse)
    if answer.refusals:
        raise RefusedPlanError(answer)
    return answer.images
