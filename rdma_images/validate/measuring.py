"""Measure an image, whatever it is: with its own Python, else by its tools and its files."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

from docker import DockerClient

from rdma_images.engine import Engine
from rdma_images.stream import CHUNK
from rdma_images.validate import container, door, layers, probing, readout
from rdma_images.validate.measured import Layer, Measured, ToolRun, lost
from rdma_images.validate.subject import Subject
from validators.probes import tools

PROBE_LIMIT = 150.0  # seconds for all probes of one image


def measure(client: DockerClient, engine: Engine, subject: Subject) -> Measured:
    """Everything that can be measured in the image; what cannot has its reason in `missing`.

    Its layers are read while its probes run. Raises RdmaImagesError where the engine refuses to run it.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        reading = pool.submit(layers.layers, client, engine, subject)
        with container.sealed(client, subject.digest) as box:
            found = _inside(box, engine, subject)
        return _with_layers(found, reading)


def _inside(box: container.Sealed, engine: Engine, subject: Subject) -> Measured:
    why = "nothing in the image can be started"
    if box.running:
        inside = door.host(f"docker://{box.container.id}", PROBE_LIMIT, engine.environ())
        found = probing.probe(inside, volumes=box.volumes)
        if isinstance(found, Measured):
            return found
        why = found
    taken = readout.read_out(cast(Iterator[bytes], box.container.export(chunk_size=CHUNK)), subject)
    runs = _tool_runs(str(box.container.id), engine) if box.running else None
    missing = {"torch": f"torch was not imported: {why}"} | ({} if runs else {"tools": why})
    return taken.model_copy(update={"tools": runs, "missing": taken.missing | missing})


def _tool_runs(container_id: str, engine: Engine) -> dict[str, ToolRun]:
    """The fabric's tools, each started by the engine: without Python there is nobody inside to start them."""
    found = {}
    for name, (tool, *arguments) in tools.COMMANDS.items():
        run = ToolRun(path="", rc=None, out="", err="", timed_out=False, seconds=0.0)
        for path in (tool, f"/opt/amazon/efa/bin/{tool}"):
            command = ["docker", "exec", container_id, path, *arguments]
            rc, out, err = door.bounded(command, tools.LIMIT, engine.environ())
            late = rc == door.TIMED_OUT
            if rc in door.NOT_FOUND and b"exec failed" in err + out:
                continue
            text = [data[: tools.KEPT].decode("utf-8", "replace") for data in (out, err)]
            run = ToolRun(path=path, rc=None if late else rc, out=text[0], err=text[1], timed_out=late, seconds=0.0)
            break
        found[name] = run
    return found


def _with_layers(found: Measured, reading: "Future[tuple[Layer, ...]]") -> Measured:
    try:
        return found.model_copy(update={"layers": reading.result()})
    except Exception as error:  # whatever an image does to the reading of its layers is an answer, not a crash
        return lost(("layers",), f"the layers could not be read: {error}", found)
