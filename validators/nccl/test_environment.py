"""Variables of the image and of its files that take the fabric away, cost speed or are left over."""

import re

from rdma_images.facts.environment import Effect
from rdma_images.inspection.inspection import Inspection, cuda_in_use
from rdma_images.inspection.measurements import Libraries, Settings
from rdma_images.plan.image_settings import NETWORK, PROVIDER
from rdma_images.validate.probes.settings import FILE_VARIABLES
from rdma_images.validate.validator import Requirement, validator
from validators.support.applies import in_tree, is_image
from validators.support.variables import (
    ENTRY_POINT_ORIGIN,
    VariableFinding,
    environments,
    file_variables,
    find_variables,
    refusing_variables,
)

VARIABLE_SOURCE = "facts/environment.yaml, each variable with its source"
RUNTIME_SOURCE = "NVIDIA/enroot, conf/hooks/98-nvidia.sh; NVIDIA Container Toolkit documentation"
SETTINGS_SOURCE = "facts/environment.yaml; NVIDIA/nccl src/misc/param.cc and ofiwg/libfabric src/var.c read these files"


def variable_names(findings: list[VariableFinding]) -> str:
    """Return the names of the variables, each once."""
    return ", ".join(dict.fromkeys(finding.name for finding in findings))


def variables_text(inspection: Inspection, findings: list[VariableFinding]) -> str:
    """Return the findings in words; "none" and why the entry point's are not known."""
    why = inspection.measured.missing.get("entry", "")
    return "; ".join(map(str, findings)) or f"none{f' ({why})' if why else ''}"


def removal_fix(findings: list[VariableFinding]) -> str:
    """Return what to change, by where the variables are set."""
    phrases = {
        "": "out of the image",
        ENTRY_POINT_ORIGIN: "out of what its entry point sets (seen where there is no device or GPU)",
    }
    by_origin = {origin: [finding for finding in findings if finding.where == origin] for origin in phrases}
    fixes = [f"leave {variable_names(group)} {phrases[origin]}" for origin, group in by_origin.items() if group]
    newer = {
        finding.newer: [candidate for candidate in findings if candidate.newer == finding.newer]
        for finding in findings
        if finding.newer
    }
    fixes += [
        f"or install {version}{f' for {variable_names(resolved)}' if len(resolved) < len(findings) else ''}"
        for version, resolved in newer.items()
    ]
    return "; ".join(fixes)


@validator("environment.harmful", source=VARIABLE_SOURCE)
def test_harmful(inspection: Inspection, require: Requirement) -> None:
    """No variable takes the fabric or the GPUs away."""
    findings = find_variables(inspection, "harmful", environments(inspection))
    fabric, promise = inspection.expected.fabric, ""
    if fabric and inspection.subject.label("fallback") == "refuse" and {NETWORK, PROVIDER} & {f.name for f in findings}:
        promise = f"; the label says refuse: set {' and '.join(refusing_variables(inspection, fabric))}"
    require(
        not findings,
        expected="none of the variables that take the fabric or the GPUs away",
        actual=variables_text(inspection, findings),
        fix=f"{removal_fix(findings)}: a job can set what it needs{promise}",
    )


@validator("environment.slow", source=VARIABLE_SOURCE, severity="warning")
def test_slow(inspection: Inspection, require: Requirement) -> None:
    """No variable makes the fabric slower, or keeps a job from it in some places."""
    absent = inspection.measured.settings.absent if inspection.measured.settings else ()
    findings = [
        finding
        for finding in find_variables(inspection, "slow", environments(inspection))
        if finding.name not in FILE_VARIABLES or finding.value not in absent  # environment.files tells of these
    ]
    require(
        not findings,
        expected="none of the variables that make the fabric slower, or keep a job from it in some places",
        actual=variables_text(inspection, findings),
        fix=f"{removal_fix(findings)}: a job can set what it needs",
    )


def is_image_with_nccl(inspection: Inspection) -> bool:
    """Return whether an image has NCCL; a host shows its GPUs itself."""
    return is_image(inspection) and in_tree(lambda _, libraries: libraries.nccl)(inspection)


@validator("environment.gpus", source=RUNTIME_SOURCE, severity="warning", when=is_image_with_nccl)
def test_gpus(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """An image with NCCL asks Enroot and NVIDIA's runtime for GPUs, and for no newer driver than it needs."""
    environment = inspection.subject.environment
    value, requirement = environment.get("NVIDIA_VISIBLE_DEVICES"), environment.get("NVIDIA_REQUIRE_CUDA", "")
    cuda = cuda_in_use(inspection, libraries)
    # One of the words that spaces separate has to hold; a newer minor version is compatible.
    majors = [re.search(r"\bcuda>=(\d+)", word) for word in requirement.split()]
    newer = bool(cuda and majors) and all(m and int(m.group(1)) > int(cuda.partition(".")[0]) for m in majors)
    actual = (
        f"NVIDIA_VISIBLE_DEVICES={value}" if value else "NVIDIA_VISIBLE_DEVICES is not set: Enroot then mounts no GPU"
    )
    fix = "set NVIDIA_VISIBLE_DEVICES=all: without it Enroot mounts no GPU, and Docker only with --gpus"
    if value and not environment.get("NVIDIA_DRIVER_CAPABILITIES"):
        actual = "NVIDIA_DRIVER_CAPABILITIES is not set: Enroot then mounts no libcuda.so.1"
        fix = "set NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    require(
        bool(value) and not newer and bool(environment.get("NVIDIA_DRIVER_CAPABILITIES")),
        expected="NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        + (f", and a driver for CUDA {cuda}, which is in use" if newer else ""),
        actual=f"NVIDIA_REQUIRE_CUDA={requirement} refuses drivers that would do for CUDA {cuda}, which is in use"
        if value and newer
        else actual,
        fix=f"set NVIDIA_REQUIRE_CUDA=cuda>={cuda}: NVIDIA's runtime refuses drivers that would do"
        if value and newer
        else fix,
        # Docker's --gpus and Kubernetes set it themselves, and who uses a fabric's cluster may use Enroot.
        severity=None if value or inspection.expected.fabric else "note",
    )


def require_no_setting(
    effect: Effect, expected: str, inspection: Inspection, settings: Settings, require: Requirement
) -> None:
    """Require that no file of the image sets a variable with this effect."""
    findings = find_variables(inspection, effect, file_variables(inspection))
    require(
        not findings,
        expected=expected,
        actual="; ".join(map(str, findings)) or f"none in {len(settings.assigned)} settings",
        fix=f"remove {', '.join(dict.fromkeys(finding.where for finding in findings))}",
    )


@validator("settings.harmful", source=SETTINGS_SOURCE)
def test_harmful_settings(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """No file sets a variable that takes the fabric or the GPUs away."""
    expected = "none of the variables that take the fabric or the GPUs away"
    require_no_setting("harmful", expected, inspection, settings, require)


@validator("settings.slow", source=SETTINGS_SOURCE, severity="warning")
def test_slow_settings(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """No file sets a variable that makes the fabric slower, or keeps a job from it in some places."""
    expected = "no variable that makes the fabric slower, or keeps a job from it in some places"
    require_no_setting("slow", expected, inspection, settings, require)
