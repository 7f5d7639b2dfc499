"""Read the files of an image in an engine, without running anything of the image."""

import contextlib
import io
import os
import secrets
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
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import LABEL_PREFIX, Fabric
from rdma_images.datapath import disk
from rdma_images.datapath.guest_files import GuestFiles
from rdma_images.engine import Engine, docker_command

# What guests never open, and what nearly all of an image of five gigabytes is: Python's packages and CUDA.
EXCLUDED = ("*/site-packages", "*/dist-packages", "./usr/local/cuda*", "./usr/share/doc")

# What the loader preloads into every program, which no option of it forbids; and a name of that length under which no
# image can have a file, as /dev is the engine's.
PRELOADED = (b"/etc/ld.so.preload\0", b"/dev/null/.preload\0")
TAR_MEMORY_BYTES = 256 * 1024 * 1024  # bytes for the tar


@contextlib.contextmanager
def image_disk(ref: str, engine: Engine, guest_files: GuestFiles) -> Iterator[disk.ImageDisk]:
    """Yield the disk of an image. Raises RdmaImagesError where the engine does not have it or cannot read it out."""
    client = engines.client(engine)
    try:
        attributes = client.images.get(ref).attrs
        with _reader(client, ref, attributes["Config"], guest_files) as container:
            descriptor = _read_disk(container, engine, guest_files)
    except ImageNotFound:
        raise RdmaImagesError(f"the engine has no image {ref}\nbuild or pull it first") from None
    except DockerException as error:
        raise RdmaImagesError(f"the files of {ref} cannot be read from the engine: {error}\ntry again") from None
    finally:
        client.close()
    try:
        yield _disk(descriptor, attributes)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _reader(client: DockerClient, ref: str, config: dict[str, Any], guest_files: GuestFiles) -> Iterator[Container]:
    """Yield a container, not started, whose only program is a tar that it was given.

    Nothing of the image gets a say in what that does: its environment is taken out, names of users are not looked up
    (which would load what /etc/nsswitch.conf names), and the loader knows no libraries but those in the folder that it
    came in, which has a name that no image knows.
    """
    inside = f".datapath-{secrets.token_hex(8)}"
    program = [f"/{inside}/{guest_files.tar[0].name}", "--inhibit-cache", "--library-path", f"/{inside}"]
    excludes = [f"--exclude={pattern}" for pattern in (f"./{inside}", *EXCLUDED)]
    # What the engine itself mounts in a container (/proc, /dev, /etc/hosts) is not the image's; its volumes are.
    options = ["--create", "--file=-", "--directory=/", "--one-file-system", "--numeric-owner", *excludes]
    volumes = [f".{os.path.normpath(volume)}" for volume in sorted(config.get("Volumes") or ())]
    container = client.containers.create(
        ref,
        entrypoint=[*program, f"/{inside}/{guest_files.tar[-1].name}"],
        command=[*options, ".", *volumes],
        environment=[name for name, _ in _environment(config)],  # a name without a value removes the variable
        user="0:0",
        cap_drop=["ALL"],
        cap_add=["DAC_READ_SEARCH"],
        security_opt=["no-new-privileges"],
        mem_limit=TAR_MEMORY_BYTES,
        pids_limit=8,
        network_mode="none",
        auto_remove=True,  # so that nothing stays even where this process does not live to remove it
        log_config=LogConfig(type="none"),
    )
    try:
        container.put_archive("/", _tar_program(guest_files, inside))
        yield container
    finally:
        with contextlib.suppress(APIError):  # it is removing itself, or has
            container.remove(force=True, v=True)


def _environment(configuration: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the environment that an image gives its programs, as names and values."""
    pairs = (entry.partition("=") for entry in configuration.get("Env") or ())
    return [(name, value) for name, _, value in pairs]


def _tar_program(guest_files: GuestFiles, folder: str) -> bytes:
    """Return a tar of the tar program, its loader and its libraries in `folder`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in guest_files.tar:
            content = path.read_bytes()
            entry = tarfile.TarInfo(f"{folder}/{path.name}")
            entry.mode = 0o755
            if path == guest_files.tar[0]:
                content = without_preloading(content)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def without_preloading(loader: bytes) -> bytes:
    """Return a loader that preloads no library. Raises RdmaImagesError for a loader of another form."""
    if loader.count(PRELOADED[0]) != 1:
        raise RdmaImagesError(
            "the loader of this Debian preloads libraries in a way that is not known here\n"
            "leave out --tier datapath on this machine"
        )
    return loader.replace(*PRELOADED)


def _read_disk(container: Container, engine: Engine, guest_files: GuestFiles) -> int:
    """Start the container, make a disk of its output, and check that the output is complete."""
    with tempfile.TemporaryFile() as errors:
        reading = docker_command.start(
            engine, "start", "--attach", str(container.id), stdout=subprocess.PIPE, stderr=errors
        )
        with reading:
            assert reading.stdout is not None
            descriptor = disk.write_disk(guest_files.mkfs, reading.stdout)
        if reading.returncode:
            os.close(descriptor)
            errors.seek(0)
            complaint = errors.read().decode(errors="replace").strip()
            raise RdmaImagesError(
                f"the image's files cannot be read: {complaint or 'docker start failed'}\nlook at the engine's log"
            )
    return descriptor


def _disk(descriptor: int, attributes: dict[str, Any]) -> disk.ImageDisk:
    """Return the disk with the image's settings for its programs."""
    configuration = attributes["Config"]
    fabric = (configuration.get("Labels") or {}).get(f"{LABEL_PREFIX}.fabric")
    return disk.ImageDisk(
        descriptor,
        environment=disk.DEFAULT_ENVIRONMENT | dict(_environment(configuration)),
        user=configuration.get("User") or "0",
        architecture=attributes["Architecture"],
        fabric=fabric if fabric in get_args(Fabric) else None,
    )
