"""The files of an image in an engine, read out of it without running any program of the image."""

import contextlib
import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from typing import Any, get_args

from docker import DockerClient
from docker.errors import APIError, DockerException, ImageNotFound
from docker.models.containers import Container
from docker.types import LogConfig

from rdma_images import engine as engines
from rdma_images.datapath import disk
from rdma_images.datapath.kit import Kit
from rdma_images.engine import Engine
from rdma_images.errors import RdmaImagesError
from rdma_images.labels import PREFIX
from rdma_images.model import Fabric

INSIDE = ".datapath-tar"  # the folder of tar and its libraries in the container that reads the image

# What guests never open, and what nearly all of an image of five gigabytes is: Python's packages and CUDA.
LEFT_OUT = (f"./{INSIDE}", "*/site-packages", "*/dist-packages", "./usr/local/cuda*", "./usr/share/doc")


@contextlib.contextmanager
def of_image(ref: str, engine: Engine, kit: Kit) -> Iterator[disk.Disk]:
    """The disk of an image. Raises RdmaImagesError where the engine does not have it or cannot read it out."""
    client = engines.client(engine)
    try:
        about = client.images.get(ref).attrs
        with _reader(client, ref, kit) as container:
            descriptor = _read(container, engine, kit)
    except ImageNotFound:
        raise RdmaImagesError(f"the engine has no image {ref}: build or pull it first") from None
    except DockerException as error:
        raise RdmaImagesError(f"{ref} cannot be read out of the engine: {error}") from None
    finally:
        client.close()
    try:
        yield _disk(descriptor, about)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _reader(client: DockerClient, ref: str, kit: Kit) -> Iterator[Container]:
    """A container of the image, not started, whose only program is a tar that it was given."""
    program = [f"/{INSIDE}/{kit.tar[0].name}", "--library-path", f"/{INSIDE}", f"/{INSIDE}/{kit.tar[-1].name}"]
    left_out = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    container = client.containers.create(
        ref,
        entrypoint=program,
        # What the engine itself mounts in a container (/proc, /dev, /etc/hosts) is not the image's.
        command=["--create", "--file=-", "--directory=/", "--one-file-system", *left_out, "."],
        user="0:0",
        network_mode="none",
        auto_remove=True,  # so that nothing stays even where this process does not live to remove it
        log_config=LogConfig(type="none"),
    )
    try:
        container.put_archive("/", _carried(kit))
        yield container
    finally:
        with contextlib.suppress(APIError):  # it is removing itself, or has
            container.remove(force=True)


def _carried(kit: Kit) -> bytes:
    """A tar of the tar program and its libraries, as the engine takes it."""
    carried = io.BytesIO()
    with tarfile.open(fileobj=carried, mode="w", dereference=True) as archive:
        for path in kit.tar:
            archive.add(path, f"{INSIDE}/{path.name}")
    return carried.getvalue()


def _read(container: Container, engine: Engine, kit: Kit) -> int:
    """Start the container, make a disk of what it says, and see that it has said all."""
    command = ["docker", "start", "--attach", str(container.id)]
    with tempfile.TemporaryFile() as errors:
        reading = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=engine.environ())
        with reading:
            assert reading.stdout is not None
            descriptor = disk.write(kit.mkfs, reading.stdout)
        if reading.returncode:
            os.close(descriptor)
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip()
            raise RdmaImagesError(f"the image's files could not be read out: {said or 'docker start failed'}")
    return descriptor


def _disk(descriptor: int, about: dict[str, Any]) -> disk.Disk:
    """The disk with what the image says of how its programs are run."""
    configuration = about["Config"]
    pairs = (entry.partition("=") for entry in configuration.get("Env") or ())
    fabric = (configuration.get("Labels") or {}).get(f"{PREFIX}.fabric")
    return disk.Disk(
        descriptor,
        environment={"PATH": disk.DEFAULT_PATH} | {name: value for name, _, value in pairs},
        user=configuration.get("User") or "0",
        architecture=about["Architecture"],
        fabric=fabric if fabric in get_args(Fabric) else None,
    )
