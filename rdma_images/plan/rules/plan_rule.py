"""The form of a rule: a function that compares some versions of a combination."""

from collections.abc import Callable
from dataclasses import dataclass

from rdma_images.facts import Facts
from rdma_images.plan.candidate import Candidate


@dataclass(frozen=True)
class Reason:
    """The reason why a combination cannot work, and its source."""

    text: str
    source: str
    missing: str = ""  # the component that would have to be added


@dataclass(frozen=True)
class Unknown:
    """A gap of the facts, for which the rule cannot say whether a combination works."""

    text: str
    source: str


Judgement = Callable[[Candidate, Facts], Reason | Unknown | None]


@dataclass(frozen=True)
class PlanRule:
    """A rule for candidates that have all of `relates`, whose versions a refusal shows.

    A rule without `relates` is about the presence of components, not about their versions.
    """

    id: str
    relates: tuple[str, ...]
    test: Judgement

    def result(self, candidate: Candidate, facts: Facts) -> Reason | Unknown | None:
        """Return why `candidate` breaks this rule, or what the facts lack to judge it; None where it does not."""
        for component in self.relates:
            if component not in candidate.versions:
                return None
        return self.test(candidate, facts)


def rule(identity: str, *relates: str) -> Callable[[Judgement], PlanRule]:
    """Make a function a rule: @rule("nccl-pin", "nccl", "pytorch")."""
    return lambda test: PlanRule(identity, relates, test)
