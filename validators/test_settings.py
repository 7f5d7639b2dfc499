"""What files of the image set for NCCL, libfabric, rdma-core and every shell."""

import re

import pytest

from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import Setting, Settings
from rdma_images.validate.pytest_plugin import Requirement
from validators.settings import Told, in_files, started, told, variables

READ = "facts/environment.yaml; NVIDIA/nccl src/misc/param.cc and ofiwg/libfabric src/var.c read these files"
FORM = "NVIDIA/nccl src/misc/param.cc: all before the first = is the name, all after it the value, # only at the start"
HANDED = "facts/environment.yaml; scripts, and modules of SageMaker's launcher, set variables for what they start"
# A script has its reason for others: it may be for one machine.
CHOOSING = ("NCCL_NET", "NCCL_NET_PLUGIN", "FI_PROVIDER", "NCCL_IB_DISABLE", "NVSHMEM_REMOTE_TRANSPORT")
INTERACTIVE = re.compile(r"/etc/bash\.bashrc|/etc/bashrc|.*/\.(?:bash|zsh)rc")  # bash(1), INVOCATION
VERBATIM = ("nccl", "libfabric")  # who takes a line of its file as it stands


def lines(found: list[Told]) -> str:
    """Return the lines of files to change."""
    return ", ".join(dict.fromkeys(one.where for one in found))


@pytest.mark.validator("settings.harmful", source=READ)
def test_harmful(case: Inspection, settings: Settings, require: Requirement) -> None:
    """No file sets a variable that takes the fabric, its tuner, NVLink or the GPUs away."""
    found = told(case, "harmful", in_files(case))
    require(
        not found,
        expected="none of the variables that take the fabric, its tuner, NVLink or the GPUs away",
        found="; ".join(map(str, found)) or f"none in {len(settings.assigned)} settings",
        fix=f"remove {lines(found)}",
    )


@pytest.mark.validator("settings.slow", source=READ, severity="warning")
def test_slow(case: Inspection, settings: Settings, require: Requirement) -> None:
    """No file sets a variable that makes the fabric slower, or that these versions do not need."""
    found = [*told(case, "slow", in_files(case)), *told(case, "obsolete", in_files(case))]
    require(
        not found,
        expected="none of the variables that make the fabric slower, or that are not needed any more",
        found="; ".join(map(str, found)) or f"none in {len(settings.assigned)} settings",
        fix=f"remove {lines(found)}",
    )


@pytest.mark.validator("settings.launchers", source=HANDED, severity="warning")
def test_launchers(case: Inspection, settings: Settings, require: Requirement) -> None:
    """No script that may start a job hands it another network than the fabric's."""
    found = [one for one in told(case, "harmful", in_files(case, launchers=True)) if one.name in CHOOSING]
    read = {one.file for one in settings.assigned if one.reader == "launcher"}
    require(
        not found,
        expected=f"none of {', '.join(CHOOSING)} that takes the fabric away",
        found="; ".join(map(str, found)) or f"none in {len(read)} scripts that set variables",
        fix=f"remove {lines(found)}, or start the job with another script",
    )


@pytest.mark.validator("settings.readable", source=FORM, severity="warning")
def test_readable(case: Inspection, settings: Settings, require: Requirement) -> None:
    """Every line of nccl.conf, libfabric.conf and of an interactive shell sets a variable that a job reads."""
    known = variables()
    found = []
    for one in (one for one in settings.assigned if one.reader != "launcher"):
        if one.reader in VERBATIM and not re.fullmatch(r"\w+", one.name):
            found.append(f"{one.file}:{one.line}: the name of the variable is {one.name!r}, which nothing reads")
        elif one.reader in VERBATIM and one.value.endswith("\r"):
            found.append(f"{one.file}:{one.line}: a carriage return is a part of the value of {one.name}")
        elif one.reader in VERBATIM and re.fullmatch(r"([\"']).*\1|\s+.*|.*\s+", one.value):
            found.append(f"{one.file}:{one.line}: the value of {one.name} is {one.value!r}, quotes and spaces with it")
        elif near := known.meant(one.name):
            found.append(f"{one.file}:{one.line}: {one.name} is read by nothing: {near} is")
        elif INTERACTIVE.search(one.file) and not _given(case, one):
            found.append(f"{one.file}:{one.line}: {one.name} is for shells with a prompt: a job does not get it")
    require(
        not found,
        expected="NAME=value, without export, quotes or spaces, in lines as Unix ends them, where a job reads it",
        found="; ".join(found) or "every line sets a variable",
        fix="write the line as NAME=value, with the very name that is read; take carriage returns out with dos2unix; "
        "set what is in .bashrc in the image's environment (ENV) in place of it",
    )


def _given(case: Inspection, one: Setting) -> bool:
    """Return whether the image's environment has what a shell's file sets, or hands it to shells without a prompt."""
    environment = started(case)
    if one.file in (environment.get("BASH_ENV"), environment.get("ENV")):
        return True
    words = [word for word in re.split(r"[:\s]+", one.value) if word and "$" not in word]
    return all(word in re.split(r"[:\s]+", environment.get(one.name, "")) for word in words)
