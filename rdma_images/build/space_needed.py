"""The disk space that a build may need, checked before it begins."""

from collections.abc import Sequence
from pathlib import Path

from rdma_images import components
from rdma_images.build.build_spec import BuildSpec
from rdma_images.core import disk_space
from rdma_images.engine import Engine, docker_command
from rdma_images.engine.layout import layout

# Bytes on the engine's disk for each byte of a wheel that is new to the engine, by torch 2.15.0's wheels (3.0 GB
# downloaded, 5.3 GB unpacked). As a layer that is handed over: compressed, and unpacked once. By the Dockerfile's
# stages (19 GB of engine data at the end): unpacked in the stage that installs it, in the stage of its layer and in the
# image, and compressed in the layer. Images share wheels, also unpacked.
HANDED_OVER, BY_STAGES = 3, 7
SYSTEM = 2 * disk_space.GB  # the system above the wheels, in its stages and in the image; 0.5 GB each
# The components that decide the wheels: an image in the engine with the same ones has the same wheels.
WHEEL_DECIDERS = tuple(component.name for component in components.ALL if component.decides_wheels)


def require(specs: Sequence[BuildSpec], engine: Engine, handed_over: bool) -> None:
    """Return when the engine's disk has enough free space for building `specs`, or cannot be looked at from here.

    `handed_over`: whether the wheels' layers are made before, and not by the Dockerfile's stages.
    Raises RdmaImagesError with what is needed, what is free, where, and the fix.
    """
    data = _data(engine)
    if data is None:
        return
    new_sizes = {w.sha256: w.size for spec in specs if not _has_wheels(spec, engine) for w in spec.lock.wheels}
    size = (HANDED_OVER if handed_over else BY_STAGES) * sum(new_sizes.values()) + SYSTEM * len(specs)
    disk_space.require(size, f"building {', '.join(spec.image.id for spec in specs)}", data)


def _has_wheels(spec: BuildSpec, engine: Engine) -> bool:
    """Return whether an image in the engine has the same wheels, by its labels."""
    parts = spec.image.components
    labels = [f"io.rdma-images.component.{name}={parts[name].version}" for name in WHEEL_DECIDERS if name in parts]
    return bool(docker_command.labelled(engine, *labels))


def _data(engine: Engine) -> Path | None:
    """Return the engine's data folder, or None where its disk is another machine's or this user may not look at it."""
    if not engine.host.startswith("unix://"):
        return None
    if engine.kind == "private":
        return layout().data
    folder = docker_command.run(engine, "info", "--format", "{{.DockerRootDir}}").stdout.strip()
    try:
        return Path(folder) if folder and Path(folder).is_dir() else None
    except PermissionError:  # a parent folder is closed to this user
        return None
