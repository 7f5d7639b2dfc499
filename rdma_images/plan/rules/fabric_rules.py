"""The fabric: what eRDMA, the EFA installer and aws-ofi-nccl need, and what breaks them."""

from rdma_images.core import versions
from rdma_images.facts import Facts
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.rules.plan_rule import PlanRule, Reason, Unknown, rule


def _fault_rule(identity: str, component: str, *relates: str) -> PlanRule:
    """Return the rule that refuses a version of `component` that is known to fail beside the last of `relates`."""
    other_component = relates[-1]

    @rule(identity, *relates)
    def has_no_known_fault(candidate: Candidate, facts: Facts) -> Reason | None:
        versions_beside = {name: candidate[name] for name in (component, other_component)}
        for row in facts.faults.faults:
            is_beside = other_component in row.with_versions or (other_component == "nccl" and not row.with_versions)
            is_known = row.component == component and row.refuses and is_beside
            if is_known and row.holds_for(versions_beside, fabric=candidate.fabric):
                return Reason(f"{row.subject(versions_beside)}: {row.why}", facts.faults.cite(row))
        return None

    return has_no_known_fault


@rule("one-fabric", "fabric", "efa-installer", "erdma-apt")
def image_has_one_fabric(_: Candidate, __: Facts) -> Reason | None:
    """Refuse EFA and eRDMA in one image."""
    text = "both replace rdma-core, and the ABI suffixes of their verbs providers differ: one would not find its device"
    return Reason(text, "rdma-core: libibverbs opens lib<driver>-rdmav<ABI>.so of its own ABI alone")


nccl_works_on_erdma = _fault_rule("nccl-on-erdma", "nccl", "erdma-apt", "nccl")


@rule("erdma-nccl", "erdma-apt", "nccl")
def erdma_nccl_new_enough(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require an NCCL as new as Alibaba asks for on eRDMA."""
    row = facts.erdma.nccl
    if versions.at_least(candidate["nccl"], row.minimum):
        return None
    return Reason(f"eRDMA needs NCCL {row.minimum} or newer", facts.erdma.cite(row, "minimum"))


@rule("erdma-codename", "erdma-apt", "base")
def erdma_suite_exists(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that Alibaba's apt repository is known to have the base's suite."""
    base, suites = facts.bases.bases[candidate["base"]], facts.erdma.suites
    if base.codename in suites:
        return None
    text = f"Alibaba's apt repository is known to have {' and '.join(suites)}, not {base.codename}"
    return Reason(text, facts.erdma.cite(next(iter(suites.values()))))


@rule("erdma-platform", "erdma-apt", "platform")
def erdma_platform_exists(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that the suite of Alibaba's apt repository has packages for the platform."""
    suite = facts.erdma.suites.get(candidate["erdma-apt"])
    if suite is None or candidate["platform"] in suite.platforms:
        return None
    known_platforms = ", ".join(suite.platforms)
    text = f"Alibaba's suite {candidate['erdma-apt']} is known for {known_platforms}, not {candidate['platform']}"
    return Reason(text, facts.erdma.cite(suite, "platforms"))


@rule("installer-base", "efa-installer", "base")
def installer_supports_base(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that the installer supports the base's distribution."""
    system, installer = facts.bases.bases[candidate["base"]].system, candidate["efa-installer"]
    supported = [support for support in facts.efa_installer.supported if support.distribution == system]
    if any(support.holds(installer) for support in supported):
        return None
    if not supported:
        return Reason(f"no EFA installer is known to support {system}", "facts/efa-installer.yaml")
    support = supported[0]
    span = " and ".join(
        filter(None, (support.since and f"from {support.since} on", support.before and f"before {support.before}"))
    )
    return Reason(f"EFA installers support {system} {span}, not {installer}", facts.efa_installer.cite(support))


@rule("installer-plugin", "efa-installer", "base", "platform")
def installer_brings_plugin(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that the installer brings the plugin on this base, if it has to."""
    if candidate.axes.get("aws-ofi-nccl") != "efa-installer":
        return None
    installer, platform = candidate["efa-installer"], candidate["platform"]
    system = facts.bases.bases[candidate["base"]].system
    rows = [b for b in facts.efa_installer.bundled_plugins if b.distribution == system and b.platform == platform]
    where = f"on {system}, {platform}"
    if not rows:
        text, source = f"no EFA installer is known to bring aws-ofi-nccl {where}", "facts/efa-installer.yaml"
    elif not any(row.holds(installer) for row in rows):
        text = f"EFA installers bring aws-ofi-nccl {where} from {rows[0].since} on, {installer} does not"
        source = facts.efa_installer.cite(rows[0])
    elif "aws-ofi-nccl" not in candidate:
        text = f"which aws-ofi-nccl EFA installer {installer} brings is not known"
        source = facts.efa_installer.cite(facts.efa_installer.releases[installer])
    else:
        return None
    return Reason(f"{text}: choose an aws-ofi-nccl version, which is then built from source", source)


@rule("ngc-trap", "efa-installer", "base")
def installer_stays_out_of_ngc_mode(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require the installer's flags against its NGC mode on a base with NVIDIA's entry point."""
    trap, installer = facts.efa_installer.ngc_entrypoint, candidate["efa-installer"]
    if facts.bases.bases[candidate["base"]].entrypoint != "nvidia" or not trap.holds(installer):
        return None
    missing_flags = [flag for flag in trap.flags if flag not in map(str, facts.efa_installer.flags_for(installer))]
    if not missing_flags:
        return None
    text = (
        f"on a base with NVIDIA's entrypoint EFA installer {installer} leaves out libnccl-net.so unless it is called "
        f"with {' '.join(missing_flags)}, and NCCL then uses TCP without an error"
    )
    return Reason(text, facts.efa_installer.cite(trap))


installer_works_with_nccl = _fault_rule("installer-fault", "efa-installer", "efa-installer", "nccl")


@rule("plugin-abi", "aws-ofi-nccl", "nccl")
def nccl_loads_plugin(candidate: Candidate, facts: Facts) -> Reason | Unknown | None:
    """Require a plugin that speaks a net ABI which NCCL still accepts."""
    plugin, nccl = facts.aws_ofi_nccl.releases[candidate["aws-ofi-nccl"]], facts.nccl.releases[candidate["nccl"]]
    if plugin.net is None:
        text = f"which net ABI versions aws-ofi-nccl {candidate['aws-ofi-nccl']} exports"
        return Unknown(
            f"{text}; NCCL {candidate['nccl']} accepts v{min(nccl.net)} and newer", facts.aws_ofi_nccl.cite(plugin)
        )
    if plugin.net >= min(nccl.net):
        return None
    text = (
        f"aws-ofi-nccl {candidate['aws-ofi-nccl']} speaks net ABI v{plugin.net} at most, "
        f"NCCL {candidate['nccl']} accepts v{min(nccl.net)} to v{max(nccl.net)}"
    )
    return Reason(text, f"{facts.aws_ofi_nccl.cite(plugin, 'net')}; {facts.nccl.cite(nccl, 'net')}")


@rule("plugin-nccl", "aws-ofi-nccl", "nccl")
def plugin_nccl_new_enough(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require an NCCL as new as the plugin needs."""
    plugin = facts.aws_ofi_nccl.releases[candidate["aws-ofi-nccl"]]
    if plugin.min_nccl is None or versions.at_least(candidate["nccl"], plugin.min_nccl):
        return None
    text = f"aws-ofi-nccl {candidate['aws-ofi-nccl']} needs NCCL {plugin.min_nccl} or newer"
    return Reason(text, facts.aws_ofi_nccl.cite(plugin, "min-nccl"))


@rule("plugin-libfabric", "aws-ofi-nccl", "efa-installer")
def libfabric_new_enough_for_plugin(candidate: Candidate, facts: Facts) -> Reason | Unknown | None:
    """Require that the installer's libfabric is as new as the plugin needs on AWS."""
    plugin, installer = facts.aws_ofi_nccl.releases[candidate["aws-ofi-nccl"]], candidate["efa-installer"]
    if plugin.min_libfabric is None:
        return None
    requirement = f"aws-ofi-nccl {candidate['aws-ofi-nccl']} needs {plugin.min_libfabric} or newer on AWS"
    if "libfabric" not in candidate:
        source = facts.efa_installer.cite(facts.efa_installer.releases[installer])
        return Unknown(f"which libfabric EFA installer {installer} brings; {requirement}", source)
    if versions.at_least(candidate["libfabric"], plugin.min_libfabric):
        return None
    text = f"EFA installer {installer} brings libfabric {candidate['libfabric']}; {requirement}"
    return Reason(text, facts.aws_ofi_nccl.cite(plugin, "min-libfabric"))


@rule("plugin-cuda", "aws-ofi-nccl", "cuda")
def plugin_supports_cuda(candidate: Candidate, facts: Facts) -> Unknown | None:
    """Report as unknown a plugin older than the first with fixes for the CUDA major."""
    major, plugin = versions.major(candidate["cuda"]), candidate["aws-ofi-nccl"]
    for fixes in facts.aws_ofi_nccl.cuda_fixes:
        if major >= fixes.major and not versions.at_least(plugin, fixes.plugin):
            text = f"whether aws-ofi-nccl {plugin} works with CUDA {major}; {fixes.plugin} has fixes for it"
            return Unknown(text, facts.aws_ofi_nccl.cite(fixes))
    return None


plugin_works_with_installer = _fault_rule("plugin-installer-fault", "aws-ofi-nccl", "aws-ofi-nccl", "efa-installer")
plugin_works_with_nccl = _fault_rule("plugin-nccl-fault", "aws-ofi-nccl", "aws-ofi-nccl", "nccl")
