"""Measure a host: a pod, a machine over ssh, or this one, with an environment on its disk if one is named."""

import json
import os
import platform
from pathlib import Path

from testinfra.host import Host

from rdma_images.chain import network_request
from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError, first_line
from rdma_images.core.plain import plain
from rdma_images.inspection.inspection import FOLDER_PREFIX, ImageConfig
from rdma_images.inspection.measurements import PROBE_DECLARATIONS, Measured, probe_names
from rdma_images.validate import probing, readout, transport
from rdma_images.validate.answers import parse_answers
from rdma_images.validate.probes import libraries, rootfs
from rdma_images.validate.probes import measure as probe_program

PROBE_SECONDS = 600.0  # seconds: an all-reduce starts a process a GPU, each of which imports torch
UNREACHABLE_FIX = "check the name, and that python3 can be run there"
ACTIVATION_SECONDS = 60.0
# What `conda activate` and a virtual environment's own script do, and the environment that they leave.
ACTIVATION_SCRIPT = """exec 3>&1 >/dev/null
if [ -n "${CONDA_PREFIX-}" ] && [ -d "$CONDA_PREFIX/conda-meta" ]; then
  for script in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do [ ! -e "$script" ] || . "$script"; done
elif [ -e "$VIRTUAL_ENV/bin/activate" ]; then . "$VIRTUAL_ENV/bin/activate"
fi
env -0 >&3"""
UNSET = "***unset***"  # a variable that `conda env config vars unset` took away
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/etc", "/opt/amazon")  # where the libraries of this machine are


def measure(host: str, tiers: tuple[str, ...], instance: str = "") -> Measured:
    """Return what the probes of `tiers` measure on `host`.

    With the files, NCCL's part is played, too, on the `instance` type where one is given. Raises RdmaImagesError where
    nothing there can run the probes. For "folder:///PATH" that is this machine with the environment at PATH activated.
    """
    names = probe_names(*tiers)
    try:
        if host.startswith(FOLDER_PREFIX):
            measured = _measure_folder(Path(host.removeprefix(FOLDER_PREFIX)), names, instance)
        else:
            machine = transport.host(host, PROBE_SECONDS)
            measured = _with_network(machine, probing.probe(machine, names), instance)
    except RuntimeError as error:  # testinfra's, with what ssh said
        complaint = getattr(error.args[0], "stderr", "").strip() if error.args else ""
        raise RdmaImagesError(
            f"{host} cannot be reached: {plain(complaint or str(error))}\n{UNREACHABLE_FIX}"
        ) from None
    if isinstance(measured, str):
        raise RdmaImagesError(f"{host} cannot be measured: {measured}\n{UNREACHABLE_FIX}")
    if set(names) <= {*measured.lost, *measured.stopped}:
        raise RdmaImagesError(f"{host} cannot be measured: {measured.missing[names[0]]}\n{UNREACHABLE_FIX}")
    missing = {name: f"{name} was not measured for {', '.join(tiers)}" for name in PROBE_DECLARATIONS}
    unmeasured = {name: why for name, why in missing.items() if getattr(measured, name, None) is None}
    return measured.model_copy(update={"missing": {**unmeasured, **measured.missing}})


def _with_network(machine: Host, measured: Measured | str, instance: str, python: str = "") -> Measured | str:
    """Return what was measured, with what the network plugin of a known NCCL does."""
    request = None if isinstance(measured, str) else network_request(host_config("", "", measured), measured, instance)
    if isinstance(measured, str) or not request:
        return measured
    answer = probing.probe(machine, ("network",), request=request, python=python)
    return measured if isinstance(answer, str) else measured.model_copy(update={"network": answer.network})


def _measure_folder(folder: Path, names: tuple[str, ...], instance: str) -> Measured | str:
    """Return what an environment's programs measure with this machine's libraries."""
    if not folder.is_dir():
        raise RefusedError(f"{folder}: no such folder\nname a conda or virtual environment")
    python = folder / "bin" / "python3"
    if not (python.is_symlink() or files.exists(python)):
        raise RefusedError(f"{folder}: no bin/python3\nname a conda or virtual environment")
    environment = _activated_environment(folder)
    if reason := _unstartable(python):
        return _read_folder(folder, environment, reason)
    machine = transport.host("local://", PROBE_SECONDS, environment)
    measured = probing.probe(machine, names, only=(*SYSTEM_FOLDERS, str(folder.resolve())), python=str(python))
    return _with_network(machine, measured, instance, str(python))


def _activated_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a shell that has activated a conda or virtual environment.

    Raises RdmaImagesError where a script of its activation ends the shell.
    """
    environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ.get('PATH', os.defpath)}"}
    if (folder / "conda-meta").is_dir():
        environment |= {"CONDA_PREFIX": str(folder), **_conda_variables(folder)}
    else:
        environment["VIRTUAL_ENV"] = str(folder)
    rc, out, err = transport.run_with_limits(["bash", "-c", ACTIVATION_SCRIPT], ACTIVATION_SECONDS, environment)
    if rc:
        last_line = plain("".join(err.decode("utf-8", "replace").strip().splitlines()[-1:]))
        raise RdmaImagesError(
            f"{folder}: its activation ends with {rc}: {last_line}\nsee what its scripts expect to be there"
        )
    return dict(line.split("=", 1) for line in os.fsdecode(out).split("\0") if "=" in line)


def _conda_variables(folder: Path) -> dict[str, str]:
    """Return conda's variables of an environment: those of packages, then its own."""
    packages = [
        json.loads(files.read_text(path)) for path in files.list_folder(folder / "etc" / "conda" / "env_vars.d")
    ]
    state = folder / "conda-meta" / "state"
    variables = [*packages, json.loads(files.read_text(state)).get("env_vars", {}) if files.exists(state) else {}]
    merged = {name: str(value) for values in variables for name, value in values.items()}
    return {name: value for name, value in merged.items() if value != UNSET}


def _unstartable(python: Path) -> str:
    """Return why a program cannot be started on this machine; "" where it can."""
    if not python.exists():
        return f"{python} is a link to {python.readlink()}, which is not here"
    try:
        transport.run_with_limits([str(python), "-c", ""], ACTIVATION_SECONDS, {})
    except RdmaImagesError as error:
        return first_line(error)
    return ""


def _read_folder(folder: Path, environment: dict[str, str], reason: str) -> Measured:
    """Return what the files of an environment and of this machine show.

    Returns:
        Nothing of it runs, for the given reason.
    """
    root, program = rootfs.Root(), str(folder / "bin" / "python3")
    machine = root.apply(libraries.linkage, program).get("machine") or platform.machine()
    update = {"environment": environment, "platform": f"linux/{machine}"}
    image_config = host_config("", str(folder), Measured()).model_copy(update=update)
    folders = (*SYSTEM_FOLDERS, str(folder.resolve()))
    values = readout.measurements(root, image_config, program, folders)
    answers = probe_program.as_json({name: {"value": value} for name, value in values.items()})
    measured = parse_answers(answers, readout.EXPORT_PROBES)
    unrun = {name: f"{name} was not measured: {reason}" for name in Measured.model_fields if name not in values}
    return measured.model_copy(update={"missing": {**measured.missing, **unrun}})


def host_config(ref: str, host: str, measured: Measured) -> ImageConfig:
    """Return a host's configuration as an image's, without digest, labels and layers."""
    system = measured.system
    return ImageConfig(
        ref=ref or host,
        digest="",
        platform=f"linux/{system.machine}" if system else "",
        labels={},
        environment=system.environment if system else {},
        user=str(system.user) if system else "",
        entrypoint=[],
        tags=[],
        bytes=0,
        created="",
        layers=[],
        history=[],
    )
