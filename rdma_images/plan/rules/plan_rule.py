"""The form of a rule: a function that compares some versions of a combination."""

from collections.abc import Callable
from dataclasses import dataclass

from rdma_images.core.image import BrokenRule
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


Test = Callable[[Candidate, Facts], Reason | Unknown | None]


@dataclass(frozen=True)
class PlanRule:
    """A rule for candidates that have all of `relates`, whose versions a refusal shows.

    One that relates none is about which components there are, whatever their versions.
    """

    id: str
    relates: tuple[str, ...]
    test: Test

    def reason(self, candidate: Candidate, facts: Facts) -> Reason | None:
        """Return why `candidate` breaks this rule; None where it does not."""
        result = self._result(candidate, facts)
        return result if isinstance(result, Reason) else None

    def unknown(self, candidate: Candidate, facts: Facts) -> Unknown | None:
        """Return what the facts lack to judge `candidate`; None for nothing."""
        result = self._result(candidate, facts)
        return result if isinstance(result, Unknown) else None

    def broken_rule(self, candidate: Candidate, facts: Facts) -> BrokenRule | None:
        """Return this rule as broken by `candidate`; None where it is not."""
        reason = self.reason(candidate, facts)
        if reason is None:
            return None
        versions = {component: candidate[component] for component in self.relates}
        return BrokenRule(self.id, versions, reason.text, reason.source, reason.missing)

    def _result(self, candidate: Candidate, facts: Facts) -> Reason | Unknown | None:
        for component in self.relates:
            if component not in candidate.versions:
                return None
        return self.test(candidate, facts)


def rule(identity: str, *relates: str) -> Callable[[Test], PlanRule]:
    """Make a function a rule: @rule("nccl-pin", "nccl", "pytorch")."""
    return lambda test: PlanRule(identity, relates, test)


def known_fault(component: str, candidate: Candidate, facts: Facts, other_component: str = "nccl") -> Reason | None:
    """Return the known fault of a component's version beside that of `other_component`."""
    versions = {name: candidate[name] for name in (component, other_component)}
    rows = [row for row in facts.faults.faults if row.component == component and row.refuses]
    rows = [row for row in rows if other_component in row.beside or (other_component == "nccl" and not row.beside)]
    row = next((row for row in rows if row.holds_for(versions, fabric=candidate.fabric)), None)
    return Reason(f"{row.subject(versions)}: {row.why}", facts.faults.cite(row)) if row else None
