"""Measure a host: a pod, a machine over ssh, or this one."""

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.plain import plain
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import PROBE_DECLARATIONS, Measured, probe_names
from rdma_images.validate import run_probes, transport

PROBE_SECONDS = 600.0  # seconds: an all-reduce starts a process a GPU, each of which imports torch
UNREACHABLE_FIX = "check the name, and that python3 can be run there"


def measure_host(host: str, tiers: tuple[str, ...], instance: str = "") -> Measured:
    """Return what the probes of `tiers` measure on `host`.

    With the files, NCCL's part is played, too, on the `instance` type where one is given. Raises RdmaImagesError where
    nothing there can run the probes.
    """
    names = probe_names(*tiers)
    try:
        machine = transport.host(host, PROBE_SECONDS)
        measured = run_probes.probe(machine, names)
        measured = run_probes.with_network(machine, measured, host_config("", "", measured), instance)
    except run_probes.NoPythonError as error:
        raise RdmaImagesError(f"{host} cannot be measured: {error}\n{UNREACHABLE_FIX}") from None
    except RuntimeError as error:  # testinfra's, with what ssh said
        complaint = getattr(error.args[0], "stderr", "").strip() if error.args else ""
        raise RdmaImagesError(
            f"{host} cannot be reached: {plain(complaint or str(error))}\n{UNREACHABLE_FIX}"
        ) from None
    if set(names) <= {*measured.failed, *measured.timed_out}:
        raise RdmaImagesError(f"{host} cannot be measured: {measured.missing[names[0]]}\n{UNREACHABLE_FIX}")
    missing = {name: f"{name} was not measured for {', '.join(tiers)}" for name in PROBE_DECLARATIONS}
    unmeasured = {name: why for name, why in missing.items() if getattr(measured, name, None) is None}
    return measured.model_copy(update={"missing": {**unmeasured, **measured.missing}})


def host_config(ref: str, host: str, measured: Measured) -> ImageConfig:
    """Return a host's configuration as an image's, without digest, labels and layers."""
    system = measured.system
    return ImageConfig(
        ref=ref or host,
        digest="",
        platform=f"linux/{system.machine}" if system else "",
        environment=system.environment if system else {},
        user=str(system.user) if system else "",
    )
