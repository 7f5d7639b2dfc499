"""Measure where an image runs: in a pod, over ssh, or on this machine."""

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.plain import plain
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import Measured, probes_of
from rdma_images.validate import probing, transport

LIMIT = 600.0  # seconds: an all-reduce starts a process a GPU, each of which imports torch
FIX = "check the name, and that python3 can be run there"


def measure(host: str, tiers: tuple[str, ...]) -> Measured:
    """Return what the probes of `tiers` measure on `host`. Raises RdmaImagesError where nothing there can run them."""
    names = probes_of(*tiers)
    try:
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
