"""vLLM, NIXL and the like, and GPU-initiated networking: what goes together, and on which fabric."""

from rdma_images.components import package
from rdma_images.components.gdrcopy import Gdrcopy
from rdma_images.core import versions
from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts import Facts
from rdma_images.facts.facts_file import Needs
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.rules.plan_rule import Reason, rule

PACKAGES = tuple(package.component_names())  # once: a nearest combination is one of thousands that are judged


@rule("package-fabric")
def package_uses_fabric(candidate: Candidate, facts: Facts) -> Reason | None:
    """Refuse a package that does not run over the image's fabric."""
    for name in PACKAGES:
        if name in candidate or name in candidate.packages:
            table = package.package_facts(name, facts)
            if row := table.not_on.get(candidate.fabric):
                reason = f"{name} over {FABRIC_TITLES[candidate.fabric]}: {row.why}\n{row.fix}"
                return Reason(reason, table.cite(row))
    return None


@rule("package-needs")
def package_goes_with_image(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require beside a package the versions with which it works."""
    for name in PACKAGES:
        if name not in candidate:
            continue
        table = package.package_facts(name, facts)
        if use := table.fabrics.get(candidate.fabric):
            for row in (table.releases[candidate[name]], use):
                if reason := _unmet(candidate, f"{name} {candidate[name]}", row.needs, table.cite(row, "needs")):
                    return reason
    return None


@rule("gin-needs")
def gin_can_start(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require for GPU-initiated networking over EFA, where it is asked for, all that it needs."""
    gin = facts.table(Gdrcopy).gin
    asked_by = [f"the variable {name}" for name in gin.asked_by.variables if name in candidate.environment]
    named = () if candidate.packages.intersection(gin.asked_by.unless_packages) else candidate.packages
    asked_by += [name for name in gin.asked_by.packages if name in named or name in candidate]
    if not asked_by or candidate.fabric != "efa":
        return None
    subject = f"NCCL's GPU-initiated networking, for which {asked_by[0]} asks,"
    return _unmet(candidate, subject, gin.needs, facts.table(Gdrcopy).cite(gin))


def _unmet(candidate: Candidate, subject: str, needs: Needs, source: str) -> Reason | None:
    """Return the first need that a combination does not meet; None where it meets all."""
    for component, requirement in needs.items():
        if component not in candidate:
            return Reason(f"{subject} needs {component} {requirement}, which is not in the image", source, component)
        if not versions.satisfies(candidate[component], requirement):
            return Reason(f"{subject} needs {component} {requirement}; the image has {candidate[component]}", source)
    return None
