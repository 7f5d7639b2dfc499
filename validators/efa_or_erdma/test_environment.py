"""Variables that an image for a fabric needs."""

from rdma_images.chain.nccl_environment import started_environment
from rdma_images.facts.fabric_software import AWS_OFI_NCCL as PLUGIN
from rdma_images.inspection.inspection import Inspection
from rdma_images.plan.image_settings import NETWORK, PROVIDER
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.applies import is_image
from validators.support.variables import (
    component_versions,
    environment_facts,
    environments,
    file_variables,
    harmful_variables,
    refusing_settings,
    refusing_variables,
)

VARIABLE_SOURCE = "facts/environment.yaml, each variable with its source"
REFUSAL_SOURCE = (
    "facts/running.yaml, required-networks: what NCCL did without the fabric, with both variables and with one"
)


@validator("environment.needed", source=VARIABLE_SOURCE, severity="warning")
def test_needed(inspection: Inspection, require: Requirement) -> None:
    """Each variable that these versions need is set: in the environment, by the entry point or in a file."""
    environment, versions = environment_facts(), component_versions(inspection)
    variable_sets = [
        *environments(inspection).values(),
        *file_variables(inspection).values(),
    ]
    set_names = {name for names_and_values in variable_sets for name in names_and_values}
    rows = [
        row
        for row in environment.needed.values()
        if row.fabric == inspection.expected.fabric and row.component in versions
    ]
    missing = [row for row in rows if row.holds(versions[row.component]) and row.name not in set_names]
    require(
        not missing,
        expected=", ".join(f"{row.name}={row.value}" for row in missing) or "nothing: these versions know it",
        actual="; ".join(
            f"{row.name} is not set for {row.component} {versions[row.component]}: {row.why} [{environment.cite(row)}]"
            for row in missing
        )
        or "nothing is missing",
        fix="; ".join(
            f"set {row.name}={row.value}"
            + (f", or install {row.component} {row.before} or later" if row.before else "")
            for row in missing
        ),
    )


def may_refuse(inspection: Inspection) -> bool:
    """Return whether an image says by its label, or by both variables, that it refuses to run without its fabric."""
    fabric, environment = str(inspection.expected.fabric), started_environment(inspection)
    networks, provider = refusing_settings(fabric, component_versions(inspection).get(PLUGIN))
    refuses = environment.get(NETWORK, "").lower() in map(str.lower, networks)
    says_so = inspection.subject.label("fallback") or (refuses and (not provider or environment.get(PROVIDER)))
    return is_image(inspection) and bool(says_so)


@validator("environment.refusal", source=REFUSAL_SOURCE, when=may_refuse)
def test_refusal(inspection: Inspection, fabric: str, require: Requirement) -> None:
    """NCCL refuses TCP where the image says that it does, and not where the image allows TCP."""
    label = inspection.subject.label("fallback")
    networks, provider = refusing_settings(fabric, component_versions(inspection).get(PLUGIN))
    environment, reports = started_environment(inspection), harmful_variables(inspection)
    current = {name: value for name in (NETWORK, PROVIDER) if (value := environment.get(name))}
    if reported := [text for name, value in current.items() if (text := f"{name}={value}") in reports]:
        skip(f"{reported[0]} takes the fabric away: see {reports[reported[0]]}")
    refuses = current.get(NETWORK, "").lower() in map(str.lower, networks)
    holds = not current if label == "allow" else refuses and (not provider or current.get(PROVIDER) == provider)
    values = " and ".join(f"{name}={value}" for name, value in current.items()) or f"neither {NETWORK} nor {PROVIDER}"
    does = "refuses" if label == "allow" else "does not refuse"
    actual = (
        f"{values}{f', and the label says {label}' if label else ''}"
        if holds
        else f"{f'the label says {label}, and ' if label else ''}with {values} NCCL {does} TCP"
    )
    required = refusing_variables(inspection, fabric)
    require(
        holds,
        expected=f"neither {NETWORK} nor {PROVIDER}: the label says allow"
        if label == "allow"
        else " and ".join(required),
        actual=actual,
        fix=f"leave out {', '.join(current)}"
        if label == "allow"
        else f"set {' and '.join(required)}: without them NCCL falls back to TCP where the fabric is missing",
    )
