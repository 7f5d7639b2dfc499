"""Measure a host: a pod, a machine over ssh, or this one."""

from testinfra.host import Host

from rdma_images.chain import network_request
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.plain import plain
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import PROBE_DECLARATIONS, Measured, probe_names
from rdma_images.validate import run_probes, transport

PROBE_SECONDS = 600.0  # seconds: an all-reduce starts a process a GPU, each of which imports torch
UNREACHABLE_FIX = "check the name, and that python3 can be run there"


def measure(host: str, tiers: tuple[str, ...], instance: str = "") -> Measured:
    """Return what the probes of `tiers` measure on `host`.

    With the files, NCCL's part is played, too, on the `instance` type where one is given. Raises RdmaImagesError where
    nothing there can run the probes.
    """
    names = probe_names(*tiers)
    try:
        machine = transport.host(host, PROBE_SECONDS)
        measured = _with_network(machine, run_probes.probe(machine, names), instance)
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


def _with_network(machine: Host, measured: Measured | str, instance: str) -> Measured | str:
    """Return what was measured, with what the network plugin of a known NCCL does."""
    request = None if isinstance(measured, str) else network_request(host_config("", "", measured), measured, instance)
    if isinstance(measured, str) or not request:
        return measured
    answer = run_probes.probe(machine, ("network",), request=request)
    return measured if isinstance(answer, str) else measured.model_copy(update={"network": answer.network})


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
