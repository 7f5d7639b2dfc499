"""aws-ofi-nccl: understood by NCCL, on a libfabric new enough, not known to be broken."""

from rdma_images import versions
from rdma_images.candidate import Candidate
from rdma_images.facts import Facts
from rdma_images.rules.rule import Reason, rule


@rule("plugin-abi", "aws-ofi-nccl", "nccl")
def loadable(candidate: Candidate, facts: Facts) -> Reason | None:
    """The plugin speaks a net ABI version that NCCL still accepts."""
    plugin, nccl = facts.plugin.releases[candidate["aws-ofi-nccl"]], facts.nccl.releases[candidate["nccl"]]
    if plugin.net is None or plugin.net >= min(nccl.net):
        return None
    text = (
        f"aws-ofi-nccl {candidate['aws-ofi-nccl']} speaks net ABI v{plugin.net} at most, "
        f"NCCL {candidate['nccl']} accepts v{min(nccl.net)} to v{max(nccl.net)}"
    )
    return Reason(text, f"{facts.plugin.cite(plugin, 'net')}; {facts.nccl.cite(nccl, 'net')}")


@rule("plugin-nccl", "aws-ofi-nccl", "nccl")
def nccl_new_enough(candidate: Candidate, facts: Facts) -> Reason | None:
    """NCCL is as new as the plugin needs."""
    plugin = facts.plugin.releases[candidate["aws-ofi-nccl"]]
    if plugin.min_nccl is None or versions.at_least(candidate["nccl"], plugin.min_nccl):
        return None
    text = f"aws-ofi-nccl {candidate['aws-ofi-nccl']} needs NCCL {plugin.min_nccl} or newer"
    return Reason(text, facts.plugin.cite(plugin, "min-nccl"))


@rule("plugin-libfabric", "aws-ofi-nccl", "libfabric")
def libfabric_new_enough(candidate: Candidate, facts: Facts) -> Reason | None:
    """libfabric is as new as the plugin needs on AWS."""
    plugin = facts.plugin.releases[candidate["aws-ofi-nccl"]]
    if plugin.min_libfabric is None or versions.at_least(candidate["libfabric"], plugin.min_libfabric):
        return None
    text = f"aws-ofi-nccl {candidate['aws-ofi-nccl']} needs libfabric {plugin.min_libfabric} or newer on AWS"
    return Reason(text, facts.plugin.cite(plugin, "min-libfabric"))


@rule("plugin-broken", "aws-ofi-nccl", "efa-installer")
def not_broken(candidate: Candidate, facts: Facts) -> Reason | None:
    """The plugin version is not one that its own makers tell to leave."""
    plugin, installer = facts.plugin.releases[candidate["aws-ofi-nccl"]], candidate["efa-installer"]
    if plugin.broken is None:
        return None
    if plugin.broken_from_installer and not versions.at_least(installer, plugin.broken_from_installer):
        return None
    return Reason(f"aws-ofi-nccl {candidate['aws-ofi-nccl']}: {plugin.broken}", facts.plugin.cite(plugin, "broken"))
