"""aws-ofi-nccl: NCCL accepts it, its libfabric is new enough, and it is not known to be broken."""

from rdma_images.core import versions
from rdma_images.facts import Facts
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.rules.rule import Reason, Unknown, known_fault, rule


@rule("plugin-abi", "aws-ofi-nccl", "nccl")
def loadable(candidate: Candidate, facts: Facts) -> Reason | Unknown | None:
    """Require a plugin that speaks a net ABI which NCCL still accepts."""
    plugin, nccl = facts.plugin.releases[candidate["aws-ofi-nccl"]], facts.nccl.releases[candidate["nccl"]]
    if plugin.net is None:
        text = f"which net ABI versions aws-ofi-nccl {candidate['aws-ofi-nccl']} exports"
        return Unknown(
            f"{text}; NCCL {candidate['nccl']} accepts v{min(nccl.net)} and newer", facts.plugin.cite(plugin)
        )
    if plugin.net >= min(nccl.net):
        return None
    text = (
        f"aws-ofi-nccl {candidate['aws-ofi-nccl']} speaks net ABI v{plugin.net} at most, "
        f"NCCL {candidate['nccl']} accepts v{min(nccl.net)} to v{max(nccl.net)}"
    )
    return Reason(text, f"{facts.plugin.cite(plugin, 'net')}; {facts.nccl.cite(nccl, 'net')}")


@rule("plugin-nccl", "aws-ofi-nccl", "nccl")
def nccl_new_enough(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require an NCCL as new as the plugin needs."""
    plugin = facts.plugin.releases[candidate["aws-ofi-nccl"]]
    if plugin.min_nccl is None or versions.at_least(candidate["nccl"], plugin.min_nccl):
        return None
    text = f"aws-ofi-nccl {candidate['aws-ofi-nccl']} needs NCCL {plugin.min_nccl} or newer"
    return Reason(text, facts.plugin.cite(plugin, "min-nccl"))


@rule("plugin-libfabric", "aws-ofi-nccl", "efa-installer")
def libfabric_new_enough(candidate: Candidate, facts: Facts) -> Reason | Unknown | None:
    """Require that the installer's libfabric is as new as the plugin needs on AWS."""
    plugin, installer = facts.plugin.releases[candidate["aws-ofi-nccl"]], candidate["efa-installer"]
    if plugin.min_libfabric is None:
        return None
    requirement = f"aws-ofi-nccl {candidate['aws-ofi-nccl']} needs {plugin.min_libfabric} or newer on AWS"
    if "libfabric" not in candidate:
        source = facts.efa.cite(facts.efa.releases[installer])
        return Unknown(f"which libfabric EFA installer {installer} brings; {requirement}", source)
    if versions.at_least(candidate["libfabric"], plugin.min_libfabric):
        return None
    text = f"EFA installer {installer} brings libfabric {candidate['libfabric']}; {requirement}"
    return Reason(text, facts.plugin.cite(plugin, "min-libfabric"))


@rule("plugin-cuda", "aws-ofi-nccl", "cuda")
def supports_cuda(candidate: Candidate, facts: Facts) -> Unknown | None:
    """Report as unknown a plugin older than the first whose notes name fixes for the CUDA major."""
    major, plugin = versions.major(candidate["cuda"]), candidate["aws-ofi-nccl"]
    for fixes in facts.plugin.cuda_fixes:
        if major >= fixes.major and not versions.at_least(plugin, fixes.plugin):
            text = f"whether aws-ofi-nccl {plugin} works with CUDA {major}; {fixes.plugin} has fixes for it"
            return Unknown(text, facts.plugin.cite(fixes))
    return None


@rule("plugin-broken", "aws-ofi-nccl", "efa-installer")
def works_with_installer(candidate: Candidate, facts: Facts) -> Reason | None:
    """Refuse a plugin that is known to fail beside this EFA installer."""
    return known_fault("aws-ofi-nccl", candidate, facts, "efa-installer")


@rule("plugin-fault", "aws-ofi-nccl", "nccl")
def works_with_nccl(candidate: Candidate, facts: Facts) -> Reason | None:
    """Refuse a plugin that is known to fail beside this NCCL."""
    return known_fault("aws-ofi-nccl", candidate, facts)
