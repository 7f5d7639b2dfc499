"""Measure an image, whatever it is: with its own Python, else by its tools and its files."""

import platform
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

from docker import DockerClient
from testinfra.host import Host

from rdma_images.core.progress import Progress, report_waiting, silent
from rdma_images.core.stream import CHUNK
from rdma_images.engine import Engine
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import EntryPointChanges, Measured, MeasuredLayer
from rdma_images.validate import container, entry_point, image_layers, probe_files, run_probes, transport
from rdma_images.validate.probes.measure import PROBE_SECONDS
from rdma_images.validate.run_probes import mark_failed, mark_timed_out

SILENCE_SECONDS = 60.0  # seconds: the probes show once a second that they go on
EMULATION_FACTOR = 4.0  # times as long where the image's programs are emulated


def measure_image(
    client: DockerClient, engine: Engine, image_config: ImageConfig, progress: Progress = silent, instance: str = ""
) -> Measured:
    """Return all that can be measured in an image; what cannot has its reason in `missing`.

    While its probes run, its layers are read and its entry point is started. Then NCCL's part is played with what they
    found, on the `instance` type where one is given. `progress` hears what takes long. Raises RdmaImagesError where
    the engine refuses to run it.
    """
    activities = ["the engine to start the image"]
    with ThreadPoolExecutor(max_workers=2) as pool, report_waiting(progress, lambda: activities[-1]):
        reading = pool.submit(image_layers.measure_layers, client, engine, image_config)
        with container.sealed_container(client, image_config.digest) as box:
            starting = pool.submit(entry_point.record_entry_point, client, engine, image_config, box)
            activities.append("what the image's own Python measures in it, where it imports torch")
            host, time_factor = _container_host(box, engine, image_config)
            measured = _measure_inside(box, host, PROBE_SECONDS * time_factor, image_config, activities)
            activities.append(f"its entry point, for at most {entry_point.ENTRY_SECONDS:g} s")
            measured = _with_entry(measured, starting.result())
            activities.append("its network plugin, which is started as NCCL starts it")
            if box.is_running():
                measured = run_probes.with_network(host, measured, image_config, instance)
        activities.append("its layers, each of which is read once")
        return _with_layers(measured, reading)


def _container_host(box: container.SealedContainer, engine: Engine, image_config: ImageConfig) -> tuple[Host, float]:
    """Return the container as a host, and how many times longer than usual it may take."""
    time_factor = EMULATION_FACTOR if image_config.machine not in ("", platform.machine()) else 1.0
    limits = (container.LIFETIME_SECONDS, engine.environ(), SILENCE_SECONDS * time_factor)
    return transport.host(f"docker://{box.container.id}", *limits), time_factor


def _measure_inside(
    box: container.SealedContainer, host: Host, limit: float, image_config: ImageConfig, activities: list[str]
) -> Measured:
    """Return what is measured with the image's Python in `limit` seconds a probe, else with its files.

    Appends each step that is started to `activities`.
    """
    why = "nothing in the image can be started"
    if box.running:
        try:
            measured = run_probes.probe(host, run_probes.STATIC, tuple(box.mounted), image_config.entrypoint, limit)
            if box.is_running():
                return measured
            why = "its container ended as soon as it had started"
        except run_probes.NoPythonError as error:
            why = str(error)
    activities.append("the image's files, which are read without running any")
    exported = probe_files.measure_export(cast(Iterator[bytes], box.container.export(chunk_size=CHUNK)), image_config)
    missing = {"torch": f"torch was not imported: {why}", "tools": why}
    return exported.model_copy(update={"missing": exported.missing | missing})


def _with_entry(measured: Measured, entry_result: EntryPointChanges | str | None) -> Measured:
    """Return what was found with what its entry point sets, or how that ended; None where it was stopped."""
    if isinstance(entry_result, EntryPointChanges):
        return measured.model_copy(update={"entry": entry_result})
    if entry_result is None:
        return mark_timed_out(("entry",), "did not start in time", measured)
    return measured.model_copy(update={"missing": {**measured.missing, "entry": entry_result}})


def _with_layers(measured: Measured, reading: "Future[tuple[MeasuredLayer, ...]]") -> Measured:
    try:
        return measured.model_copy(update={"layers": reading.result()})
    except Exception as error:  # whatever an image does to the reading of its layers is an answer, not a crash
        return mark_failed(("layers",), f"the layers could not be read: {error}", measured)
