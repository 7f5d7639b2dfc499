"""The EFA installer: it supports the base, and brings the plugin that the target takes from it."""

from rdma_images.facts import Facts
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.rules.rule import Reason, known_fault, rule


@rule("installer-base", "efa-installer", "base")
def supports_base(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that the installer supports the base's distribution."""
    system, installer = facts.bases.bases[candidate["base"]].system, candidate["efa-installer"]
    supported = [support for support in facts.efa.supported if support.distribution == system]
    if any(support.holds(installer) for support in supported):
        return None
    if not supported:
        return Reason(f"no EFA installer is known to support {system}", "facts/efa-installer.yaml")
    support = supported[0]
    span = " and ".join(
        filter(None, (support.since and f"from {support.since} on", support.before and f"before {support.before}"))
    )
    return Reason(f"EFA installers support {system} {span}, not {installer}", facts.efa.cite(support))


@rule("installer-plugin", "efa-installer", "base", "platform")
def brings_plugin(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that the installer brings the plugin on this base and platform, where it is asked to."""
    if candidate.axes.get("aws-ofi-nccl") != "efa-installer":
        return None
    installer, platform = candidate["efa-installer"], candidate["platform"]
    system = facts.bases.bases[candidate["base"]].system
    rows = [b for b in facts.efa.plugin_brought if b.distribution == system and b.platform == platform]
    where = f"on {system}, {platform}"
    if not rows:
        text, source = f"no EFA installer is known to bring aws-ofi-nccl {where}", "facts/efa-installer.yaml"
    elif not any(row.holds(installer) for row in rows):
        text = f"EFA installers bring aws-ofi-nccl {where} from {rows[0].since} on, {installer} does not"
        source = facts.efa.cite(rows[0])
    elif "aws-ofi-nccl" not in candidate:
        text = f"which aws-ofi-nccl EFA installer {installer} brings is not known"
        source = facts.efa.cite(facts.efa.releases[installer])
    else:
        return None
    return Reason(f"{text}: choose an aws-ofi-nccl version, which is then built from source", source)


@rule("ngc-trap", "efa-installer", "base")
def stays_out_of_ngc_mode(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require the installer's flags against its NGC mode on a base with NVIDIA's entry point."""
    trap, installer = facts.efa.ngc_trap, candidate["efa-installer"]
    if facts.bases.bases[candidate["base"]].entrypoint != "nvidia" or not trap.holds(installer):
        return None
    missing_flags = [flag for flag in trap.flags if flag not in facts.efa.flags_for(installer)]
    if not missing_flags:
        return None
    text = (
        f"on a base with NVIDIA's entrypoint EFA installer {installer} leaves out libnccl-net.so unless it is called "
        f"with {' '.join(missing_flags)}, and NCCL then uses TCP without an error"
    )
    return Reason(text, facts.efa.cite(trap))


@rule("installer-fault", "efa-installer", "nccl")
def works_with_nccl(candidate: Candidate, facts: Facts) -> Reason | None:
    """Refuse an installer whose libfabric is known to fail beside this NCCL."""
    return known_fault("efa-installer", candidate, facts)
