"""Lines of files that set variables: each is read as it was meant."""

import re

import pytest

from rdma_images.chain.nccl_environment import started_environment
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import AssignedVariable, Settings
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.variables import VariableFinding, file_variables, find_variables, variable_facts

FORM_SOURCE = (
    "NVIDIA/nccl src/misc/param.cc: all before the first = is the name, all after it the value, # only at the start"
)
NAME_FIX = "write the line as NAME=value, with the very name that is read"
LINE_END_FIX = "take the carriage returns out with dos2unix"
PLAIN_FIX = "write the line as NAME=value, without quotes and spaces"
INTERACTIVE_FILE = re.compile(r"/etc/bash\.bashrc|/etc/bashrc|.*/\.(?:bash|zsh)rc")  # bash(1), INVOCATION
VERBATIM_READERS = ("nccl", "libfabric")  # who takes a line of its file as it stands


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
