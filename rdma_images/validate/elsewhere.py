"""Measure where an image runs: in a pod, over ssh, or on this machine."""

from rdma_images.errors import RdmaImagesError
from rdma_images.model import Tier
from rdma_images.plain import plain
from rdma_images.validate import door, probing
from rdma_images.validate.measured import Measured
from rdma_images.validate.subject import Subject

LIMIT = 600.0  # seconds: an all-reduce starts a process a GPU, each of which imports torch
PROBES: dict[Tier, tuple[str, ...]] = {
    "static": probing.STATIC,
    "device": ("system", "tools", "devices"),
    "gpu": ("system", "torch", "devices", "packages", "gpus"),
}


def measure(host: str, tiers: tuple[str, ...]) -> Measured:
    """What the probes of `tiers` measure on `host`. Raises RdmaImagesError where nothing there can run them."""
    names = tuple(dict.fromkeys(probe for tier, probes in PROBES.items() if tier in tiers for probe in probes))
    try:
        found = probing.probe(door.host(host, LIMIT), names)
    except RuntimeError as error:  # testinfra's, with what ssh said
        said = getattr(error.args[0], "stderr", "").strip() if error.args else ""
        raise RdmaImagesError(f"{host} cannot be reached: {plain(said or str(error))}") from None
    if isinstance(found, str):
        raise RdmaImagesError(f"{host} cannot be measured: {found}")
    if set(names) <= set(found.lost):
        raise RdmaImagesError(f"{host} cannot be measured: {found.missing[names[0]]}")
    missing = {name: f"{name} was not measured for {', '.join(tiers)}" for name in Measured.model_fields}
    unmeasured = {name: why for name, why in missing.items() if getattr(found, name, None) is None}
    return found.model_copy(update={"missing": {**unmeasured, **found.missing}})


def subject(ref: str, host: str, found: Measured) -> Subject:
    """A host as the subject of a report: an image of which nobody says what it is."""
    system = found.system
    return Subject(
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
