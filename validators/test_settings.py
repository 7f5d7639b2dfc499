"""Validators of the image's files that set variables of NCCL, libfabric, rdma-core and shells."""

import re

import pytest

from rdma_images.chain.nccl_environment import started_environment
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import AssignedVariable, Settings
from rdma_images.validate.pytest_plugin import Requirement
from validators.settings import NO_NCCL, VariableFinding, concerns_nccl, file_variables, find_variables, variable_facts

FILE_SOURCE = "facts/environment.yaml; NVIDIA/nccl src/misc/param.cc and ofiwg/libfabric src/var.c read these files"
FORM_SOURCE = (
    "NVIDIA/nccl src/misc/param.cc: all before the first = is the name, all after it the value, # only at the start"
)
LAUNCHER_SOURCE = (
    "facts/environment.yaml; scripts, and modules of SageMaker's launcher, set variables for what they start"
)
# A script has its reason for others: it may be for one machine.
NETWORK_VARIABLES = ("NCCL_NET", "NCCL_NET_PLUGIN", "FI_PROVIDER", "NCCL_IB_DISABLE", "NVSHMEM_REMOTE_TRANSPORT")
NAME_FIX = "write the line as NAME=value, with the very name that is read"
LINE_END_FIX = "take the carriage returns out with dos2unix"
PLAIN_FIX = "write the line as NAME=value, without quotes and spaces"
INTERACTIVE_FILE = re.compile(r"/etc/bash\.bashrc|/etc/bashrc|.*/\.(?:bash|zsh)rc")  # bash(1), INVOCATION
VERBATIM_READERS = ("nccl", "libfabric")  # who takes a line of its file as it stands


def places(findings: list[VariableFinding]) -> str:
    """Return the lines of files to change."""
    return ", ".join(dict.fromkeys(finding.where for finding in findings))


@pytest.mark.validator("settings.harmful", source=FILE_SOURCE)
def test_harmful(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """No file sets a variable that takes the fabric or the GPUs away."""
    if not concerns_nccl(inspection):
        pytest.skip(NO_NCCL)
    findings = find_variables(inspection, "harmful", file_variables(inspection))
    require(
        not findings,
        expected="none of the variables that take the fabric or the GPUs away",
        actual="; ".join(map(str, findings)) or f"none in {len(settings.assigned)} settings",
        fix=f"remove {places(findings)}",
    )


@pytest.mark.validator("settings.slow", source=FILE_SOURCE, severity="warning")
def test_slow(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """No file sets a variable that makes the fabric slower, keeps a job from it in some places, or is not needed."""
    if not concerns_nccl(inspection):
        pytest.skip(NO_NCCL)
    slow = find_variables(inspection, "slow", file_variables(inspection))
    findings = [*slow, *find_variables(inspection, "obsolete", file_variables(inspection))]
    require(
        not findings,
        expected="no variable that makes the fabric slower, keeps a job from it in some places, or is not needed",
        actual="; ".join(map(str, findings)) or f"none in {len(settings.assigned)} settings",
        fix=f"remove {places(findings)}",
        severity="note" if findings and not slow else None,
    )


@pytest.mark.validator("settings.launchers", source=LAUNCHER_SOURCE, severity="warning")
def test_launchers(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """No script that may start a job hands it another network than the fabric's."""
    if not concerns_nccl(inspection):
        pytest.skip(NO_NCCL)
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


@pytest.mark.validator("settings.readable", source=FORM_SOURCE, severity="warning")
def test_readable(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """Every line of nccl.conf, libfabric.conf and of an interactive shell sets a variable that a job reads."""
    variable_table = variable_facts()
    harmful = {finding.where for finding in _harmful(inspection)}
    fixes: dict[str, str] = {}
    for setting in (setting for setting in settings.assigned if setting.reader != "launcher"):
        where = f"{setting.file}:{setting.line}"
        if setting.reader in VERBATIM_READERS and not re.fullmatch(r"\w+", setting.name):
            fixes[f"{where}: the name of the variable is {setting.name!r}, which nothing reads"] = NAME_FIX
        elif setting.reader in VERBATIM_READERS and setting.value.endswith("\r"):
            fixes[f"{where}: a carriage return is a part of the value of {setting.name}"] = LINE_END_FIX
        elif setting.reader in VERBATIM_READERS and re.fullmatch(r"([\"']).*\1|\s+.*|.*\s+", setting.value):
            fixes[f"{where}: the value of {setting.name} is {setting.value!r}, quotes and spaces with it"] = PLAIN_FIX
        elif near := variable_table.closest_name(setting.name):
            fixes[f"{where}: {setting.name} is read by nothing: {near} is"] = NAME_FIX
        elif (
            INTERACTIVE_FILE.search(setting.file) and where not in harmful and not _is_set_for_jobs(inspection, setting)
        ):
            problem = f"{where}: {setting.name} is for shells with a prompt: a job does not get it"
            fixes[problem] = "set it with ENV in the Dockerfile, or in the job"
    require(
        not fixes,
        expected="NAME=value, without export, quotes or spaces, in lines as Unix ends them, where a job reads it",
        actual="; ".join(fixes) or "every line sets a variable",
        fix="; ".join(dict.fromkeys(fixes.values())),
    )


def _harmful(inspection: Inspection) -> list[VariableFinding]:
    """Return the lines that settings.harmful names, of an image for a fabric."""
    return find_variables(inspection, "harmful", file_variables(inspection)) if inspection.expected.fabric else []


def _is_set_for_jobs(inspection: Inspection, setting: AssignedVariable) -> bool:
    """Return whether a job gets what the file of an interactive shell sets."""
    environment = started_environment(inspection)
    if setting.file in (environment.get("BASH_ENV"), environment.get("ENV")):
        return True
    words = [word for word in re.split(r"[:\s]+", setting.value) if word and "$" not in word]
    return all(word in re.split(r"[:\s]+", environment.get(setting.name, "")) for word in words)
