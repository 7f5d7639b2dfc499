"""The fabric: an image has one, and eRDMA has requirements of its own."""

from rdma_images.core import versions
from rdma_images.facts import Facts
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.rules.rule import Reason, rule


@rule("one-fabric", "fabric", "efa-installer", "erdma-apt")
def has_one_fabric(_: Candidate, __: Facts) -> Reason | None:
    """Refuse EFA and eRDMA in one image."""
    text = "both replace rdma-core, and the ABI suffixes of their verbs providers differ: one would not find its device"
    return Reason(text, "docs/explanation/design.md")


@rule("nccl-on-erdma", "erdma-apt", "nccl")
def nccl_works_on_erdma(candidate: Candidate, facts: Facts) -> Reason | None:
    """Refuse an NCCL that crashes on eRDMA."""
    broken_version = facts.erdma.broken_nccl.get(candidate["nccl"])
    if broken_version is None:
        return None
    return Reason(
        f"NCCL {candidate['nccl']} on eRDMA: {broken_version.why}; fixed in {broken_version.fixed}",
        facts.erdma.cite(broken_version),
    )


@rule("erdma-nccl", "erdma-apt", "nccl")
def nccl_new_enough(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require an NCCL as new as Alibaba asks for on eRDMA."""
    minimum = facts.erdma.minimum
    if versions.at_least(candidate["nccl"], minimum.nccl):
        return None
    return Reason(f"eRDMA needs NCCL {minimum.nccl} or newer", facts.erdma.cite(minimum))


@rule("erdma-codename", "erdma-apt", "base")
def suite_exists(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that Alibaba's apt repository is known to have the base's suite."""
    repository, base = facts.erdma.repository, facts.bases.bases[candidate["base"]]
    if base.codename in repository.codenames:
        return None
    text = f"Alibaba's apt repository is known to have {' and '.join(repository.codenames)}, not {base.codename}"
    return Reason(text, facts.erdma.cite(repository, "codenames"))


@rule("erdma-platform", "erdma-apt", "platform")
def platform_exists(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that Alibaba's apt repository has packages for the platform."""
    repository = facts.erdma.repository
    if candidate["platform"] in repository.platforms:
        return None
    text = f"Alibaba's apt repository is known for {', '.join(repository.platforms)}, not {candidate['platform']}"
    return Reason(text, facts.erdma.cite(repository, "platforms"))
