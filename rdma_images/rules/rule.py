"""What a rule is: a small function that relates some versions, and says why they cannot go together."""

from collections.abc import Callable
from dataclasses import dataclass

from rdma_images.candidate import Candidate
from rdma_images.facts import Facts
from rdma_images.model import Broken


@dataclass(frozen=True)
class Reason:
    """Why a combination cannot work, and who says so."""

    text: str
    source: str


@dataclass(frozen=True)
class Unknown:
    """What the facts do not know, so that nobody can say whether a combination works."""

    text: str
    source: str


Judge = Callable[[Candidate, Facts], Reason | Unknown | None]


@dataclass(frozen=True)
class Rule:
    """A rule applies to a candidate that has all of `relates`; those are the versions that a refusal shows.

    One that relates none is about what is there at all, whatever its version.
    """

    id: str
    relates: tuple[str, ...]
    judge: Judge

    @property
    def summary(self) -> str:
        """The rule in a sentence."""
        return (self.judge.__doc__ or "").split("\n")[0]

    def reason(self, candidate: Candidate, facts: Facts) -> Reason | None:
        """Why `candidate` breaks this rule; None when it does not, or when the rule is not about it."""
        found = self._judged(candidate, facts)
        return found if isinstance(found, Reason) else None

    def unknown(self, candidate: Candidate, facts: Facts) -> Unknown | None:
        """What is not known to judge `candidate` by this rule; None when it could be judged."""
        found = self._judged(candidate, facts)
        return found if isinstance(found, Unknown) else None

    def broken(self, candidate: Candidate, facts: Facts) -> Broken | None:
        """How `candidate` breaks this rule, with the versions that it relates; None when it does not."""
        reason = self.reason(candidate, facts)
        if reason is None:
            return None
        versions = {component: candidate[component] for component in self.relates}
        return Broken(rule=self.id, versions=versions, reason=reason.text, source=reason.source)

    def _judged(self, candidate: Candidate, facts: Facts) -> Reason | Unknown | None:
        for component in self.relates:
            if component not in candidate.versions:
                return None
        return self.judge(candidate, facts)


def rule(identity: str, *relates: str) -> Callable[[Judge], Rule]:
    """Make a function a rule: @rule("nccl-pin", "nccl", "pytorch")."""
    return lambda judge: Rule(identity, relates, judge)
