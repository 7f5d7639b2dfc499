"""Why a combination of versions cannot work: one small function a rule, in a module a subject."""

from rdma_images.candidate import Candidate
from rdma_images.facts import Facts
from rdma_images.model import Broken
from rdma_images.rules import cuda, fabric, installer, nccl, plugin, python, shape
from rdma_images.rules.rule import Rule

__all__ = ["RULES", "Rule", "check", "unknown", "work"]

RULES: tuple[Rule, ...] = tuple(
    found
    for module in (shape, fabric, installer, plugin, nccl, cuda, python)
    for found in vars(module).values()
    if isinstance(found, Rule)
)


def check(candidate: Candidate, facts: Facts) -> tuple[Broken, ...]:
    """Every rule that `candidate` breaks; empty for a combination that can work."""
    judged = (rule.broken(candidate, facts) for rule in RULES)
    return tuple(broken for broken in judged if broken)


def unknown(candidate: Candidate, facts: Facts) -> tuple[str, ...]:
    """What is not known of `candidate` that a rule would have to know, a sentence with its source each."""
    found = (rule.unknown(candidate, facts) for rule in RULES)
    return tuple(f"{gap.text} [{gap.source}]" for gap in found if gap)


def work(candidate: Candidate, facts: Facts) -> bool:
    """Whether `candidate` breaks no rule; stops at the first it does, where those of shape are the rarest."""
    return not any(rule.reason(candidate, facts) for rule in reversed(RULES))
