"""Rules for combinations of versions: a small function each, in a module for each subject."""

from rdma_images.components import pytorch
from rdma_images.core.image import Image, machine_name
from rdma_images.facts import Facts
from rdma_images.facts.faults import KnownFault, join_fixes
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.refusals import BrokenRule
from rdma_images.plan.rules import axis_rules, fabric_rules, package_rules, wheel_rules
from rdma_images.plan.rules.plan_rule import PlanRule, Reason, Unknown

RULES: tuple[PlanRule, ...] = tuple(
    value
    for module in (axis_rules, fabric_rules, wheel_rules, package_rules)
    for value in vars(module).values()
    if isinstance(value, PlanRule)
)


def broken_rules(candidate: Candidate, facts: Facts) -> tuple[BrokenRule, ...]:
    """Return the rules that a combination breaks, none if it can work."""
    results = ((rule, rule.result(candidate, facts)) for rule in RULES)
    return tuple(
        BrokenRule(
            rule.id, {name: candidate[name] for name in rule.relates}, reason.text, reason.source, reason.missing
        )
        for rule, reason in results
        if isinstance(reason, Reason)
    )


def unknown_facts(candidate: Candidate, facts: Facts) -> tuple[str, ...]:
    """Return the facts that rules lack to judge `candidate`, each with its source."""
    results = (rule.result(candidate, facts) for rule in RULES)
    return tuple(f"{gap.text} [{gap.source}]" for gap in results if isinstance(gap, Unknown))


def known_faults(image: Image, facts: Facts) -> list[str]:
    """Return what facts/faults.yaml knows of an image's versions, by component, with what to do on a second line."""
    versions = {name: component.version for name, component in image.components.items()}
    if pytorch.NAME in versions:
        versions["torch"] = versions[pytorch.NAME]
    conditions = (versions, machine_name(image.platform), image.environment, image.fabric)
    rows = [row for row in facts.faults.faults if not row.missing_library and row.holds_for(*conditions)]
    by_subject: dict[str, list[KnownFault]] = {}
    for row in rows:
        by_subject.setdefault(row.subject(versions), []).append(row)
    return [
        f"{subject}: {'; '.join(row.why for row in faults)}\n  {join_fixes(row.fix for row in faults)}"
        for subject, faults in by_subject.items()
    ]


def is_allowed(candidate: Candidate, facts: Facts) -> bool:
    """Return whether `candidate` breaks no rule; stops at the first that it breaks."""
    # Backwards: the first rules, those of shape, are the ones broken least.
    return not any(isinstance(rule.result(candidate, facts), Reason) for rule in reversed(RULES))
