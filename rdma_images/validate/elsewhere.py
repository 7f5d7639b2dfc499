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
        found = probing.probe(transport.host(host, LIMIT), names)
    except RuntimeError as error:  # testinfra's, with what ssh said
        said = getattr(error.args[0], "stderr", "").strip() if error.args else ""
        raise RdmaImagesError(f"{host} cannot be reached: {plain(said or str(error))}\n{FIX}") from None
    if isinstance(found, str):
        raise RdmaImagesError(f"{host} cannot be measured: {found}\n{FIX}")
    if set(names) <= set(found.lost):
        raise RdmaImagesError(f"{host} cannot be measured: {found.missing[names[0]]}\n{FIX}")
    missing = {name: f"{name} was not measured for {', '.join(tiers)}" for name in Measured.model_fields}
    unmeasured = {name: why for name, why in missing.items() if getattr(found, name, None) is None}
    return found.model_copy(update={"missing": {**unmeasured, **found.missing}})


def subject(ref: str, host: str, found: Measured) -> ImageConfig:
    """Return a host as the subject of a report: an image without a plan and without labels."""
    system = found.system
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
