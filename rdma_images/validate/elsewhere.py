"""Measure where an image runs: in a pod, over ssh, or on this machine."""

import os
from pathlib import Path

from rdma_images.chain import network_request
from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.plain import plain
from rdma_images.inspection.inspection import Expected, ImageConfig, Inspection
from rdma_images.inspection.measurements import Measured, probes_of
from rdma_images.validate import FOLDER, probing, transport

LIMIT = 600.0  # seconds: an all-reduce starts a process a GPU, each of which imports torch
FIX = "check the name, and that python3 can be run there"
SYSTEM = ("/usr", "/lib", "/lib64", "/etc", "/opt/amazon")  # where the libraries of this machine are


def measure(host: str, tiers: tuple[str, ...]) -> Measured:
    """Return what the probes of `tiers` measure on `host`. Raises RdmaImagesError where nothing there can run them.

    For "folder:///PATH" that is this machine with the environment at PATH activated.
    """
    names = probes_of(*tiers)
    try:
        if host.startswith(FOLDER):
            measured = _measure_folder(Path(host.removeprefix(FOLDER)), names)
        else:
            measured = probing.probe(transport.host(host, LIMIT), names)
    except RuntimeError as error:  # testinfra's, with what ssh said
        complaint = getattr(error.args[0], "stderr", "").strip() if error.args else ""
        raise RdmaImagesError(f"{host} cannot be reached: {plain(complaint or str(error))}\n{FIX}") from None
    if isinstance(measured, str):
        raise RdmaImagesError(f"{host} cannot be measured: {measured}\n{FIX}")
    if set(names) <= set(measured.lost):
        raise RdmaImagesError(f"{host} cannot be measured: {measured.missing[names[0]]}\n{FIX}")
    missing = {name: f"{name} was not measured for {', '.join(tiers)}" for name in Measured.model_fields}
    unmeasured = {name: why for name, why in missing.items() if getattr(measured, name, None) is None}
    return measured.model_copy(update={"missing": {**unmeasured, **measured.missing}})


def _measure_folder(folder: Path, names: tuple[str, ...]) -> Measured | str:
    """Return what is measured with the programs and packages of an environment, and this machine's libraries."""
    python = folder / "bin" / "python3"
    if not files.exists(python):
        raise RefusedError(f"{folder}: no bin/python3\nname a conda or virtual environment that this machine can run")
    environment = {
        **os.environ,
        "PATH": f"{folder}/bin:{os.environ.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(folder),
    }
    environment["CONDA_PREFIX"] = str(folder)
    machine = transport.host("local://", LIMIT, environment)
    measured = probing.probe(machine, names, only=(*SYSTEM, str(folder.resolve())), python=str(python))
    if isinstance(measured, str):
        return measured
    expected = Expected(fabric=None, because="not asked here")
    inspection = Inspection(subject=subject("", str(folder), measured), expected=expected, measured=measured)
    request = network_request(inspection)
    answer = probing.probe(machine, ("network",), request=request, python=str(python)) if request else ""
    return measured if isinstance(answer, str) else measured.model_copy(update={"network": answer.network})


def subject(ref: str, host: str, measured: Measured) -> ImageConfig:
    """Return a host as the subject of a report: an image without a plan and without labels."""
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
