"""Files that set variables which take the fabric away, or cost speed."""

import pytest

from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import Settings
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.variables import VariableFinding, file_variables, find_variables

FILE_SOURCE = "facts/environment.yaml; NVIDIA/nccl src/misc/param.cc and ofiwg/libfabric src/var.c read these files"
LAUNCHER_SOURCE = (
    "facts/environment.yaml; scripts, and modules of SageMaker's launcher, set variables for what they start"
)
# A script has its reason for others: it may be for one machine.
NETWORK_VARIABLES = ("NCCL_NET", "NCCL_NET_PLUGIN", "FI_PROVIDER", "NCCL_IB_DISABLE", "NVSHMEM_REMOTE_TRANSPORT")


def places(findings: list[VariableFinding]) -> str:
    """Return the lines of files to change."""
    return ", ".join(dict.fromkeys(finding.where for finding in findings))


@pytest.mark.validator("settings.harmful", source=FILE_SOURCE)
def test_harmful(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """No file sets a variable that takes the fabric or the GPUs away."""
    findings = find_variables(inspection, "harmful", file_variables(inspection))
    require(
        not findings,
        expected="none of the variables that take the fabric or the GPUs away",
        actual="; ".join(map(str, findings)) or f"none in {len(settings.assigned)} settings",
        fix=f"remove {places(findings)}",
    )


@pytest.mark.validator("settings.slow", source=FILE_SOURCE, severity="warning")
def test_slow(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """No file sets a variable that makes the fabric slower, or keeps a job from it in some places."""
    findings = find_variables(inspection, "slow", file_variables(inspection))
    require(
        not findings,
        expected="no variable that makes the fabric slower, or keeps a job from it in some places",
        actual="; ".join(map(str, findings)) or f"none in {len(settings.assigned)} settings",
        fix=f"remove {places(findings)}",
    )


@pytest.mark.validator("settings.launchers", source=LAUNCHER_SOURCE, severity="warning")
def test_launchers(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """No script that may start a job hands it another network than the fabric's."""
    findings = [
        item
        for item in find_variables(inspection, "harmful", file_variables(inspection, launchers=True))
        if item.name in NETWORK_VARIABLES
    ]
    scripts = {item.file for item in settings.assigned if item.reader == "launcher"}
    require(
        not findings,
        expected=f"none of {', '.join(NETWORK_VARIABLES)} that takes the fabric away",
        actual="; ".join(map(str, findings)) or f"none in {len(scripts)} scripts that set variables",
        fix=f"remove {places(findings)}, or start the job with another script",
    )
