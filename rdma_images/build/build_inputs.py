"""The inputs of a build: what must be so before it begins, and the downloads."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rdma_images import components
from rdma_images.build.bake_targets import Contexts
from rdma_images.build.build_spec import BuildSpec
from rdma_images.build.run_bake import Options
from rdma_images.core import disk_space
from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import Progress
from rdma_images.core.source import Supply
from rdma_images.engine import Engine, docker_command, platforms
from rdma_images.engine.debian import bootstrap
from rdma_images.engine.layout import layout
from rdma_images.inputs import availability, debian_index
from rdma_images.inputs.fetch import fetch
from rdma_images.inputs.project import Project

# Bytes on the engine's disk for each byte of a wheel that is new to the engine, by torch 2.15.0's wheels (3.0 GB
# downloaded, 5.3 GB unpacked). As a layer that is handed over: compressed, and unpacked once. By the Dockerfile's
# stages (19 GB of engine data at the end): unpacked in the stage that installs it, in the stage of its layer and in the
# image, and compressed in the layer. Images share wheels, also unpacked.
HANDED_OVER, BY_STAGES = 3, 7
SYSTEM = 2 * disk_space.GB  # the system above the wheels, in its stages and in the image; 0.5 GB each
# The components that decide the wheels: an image in the engine with the same ones has the same wheels.
WHEEL_DECIDERS = tuple(component.name for component in components.ALL if component.decides_wheels)


def require_sources(
    specs: Sequence[BuildSpec], project: Project, engine: Engine, options: Options, progress: Progress
) -> dict[str, tuple[Supply, ...]]:
    """Return where each source comes from, by image id, once all are known to answer.

    Downloads nothing but the images that a fabric is added to.

    Raises:
        UnreachableSourcesError: A source does not answer.
        RefusedError: The builder cannot build the platform, or an archive lacks a Debian package.
    """
    for spec in specs:
        if spec.image.onto and options.builder:
            raise RefusedError(
                f"--builder {options.builder}: {spec.image.onto.base.ref} is in this machine's engine, where it was "
                "measured\nleave --builder out"
            )
        if spec.image.onto:
            docker_command.ensure_image(engine, spec.image.onto.base.ref, progress)
    platforms.require((spec.image.platform for spec in specs), engine, options.builder)
    supplies = {
        spec.image.id: availability.find_supplies(spec.sources, project.mirrors, options.rehearse) for spec in specs
    }
    availability.require([supply for image_supplies in supplies.values() for supply in image_supplies])
    debian_index.require_packages((spec.image for spec in specs), project.facts, project.mirrors, progress)
    return supplies


def download(supplies: Mapping[str, Sequence[Supply]], project: Project, progress: Progress) -> Contexts:
    """Download and verify the sources of all images, and return the contexts that have them."""
    downloads = fetch([supply for supplied in supplies.values() for supply in supplied], project.mirrors, progress)

    def bootstrapped(base: str, platform: str) -> Path:
        return bootstrap.base(base, progress, platform)

    return Contexts(project.facts, lambda source: downloads[source.id], bootstrapped)


def require_space(specs: Sequence[BuildSpec], engine: Engine, handed_over: bool) -> None:
    """Raise RdmaImagesError where the engine's disk lacks space for building `specs`.

    The error says what is needed, what is free, where, and what to do.

    Args:
        specs: The images.
        engine: The engine.
        handed_over: Whether the wheels' layers are made before, and not by the Dockerfile's stages.
    """
    data_folder = _engine_data_folder(engine)
    if data_folder is None:
        return
    new_sizes = {w.sha256: w.size for spec in specs if not _has_wheels(spec, engine) for w in spec.lock.wheels}
    size = (HANDED_OVER if handed_over else BY_STAGES) * sum(new_sizes.values()) + SYSTEM * len(specs)
    disk_space.require(size, f"building {', '.join(spec.image.id for spec in specs)}", data_folder)


def _has_wheels(spec: BuildSpec, engine: Engine) -> bool:
    """Return whether an image in the engine has the same wheels, by its labels."""
    parts = spec.image.components
    wheel_labels = [
        f"io.rdma-images.component.{name}={parts[name].version}" for name in WHEEL_DECIDERS if name in parts
    ]
    return bool(docker_command.images_with_labels(engine, *wheel_labels))


def _engine_data_folder(engine: Engine) -> Path | None:
    """Return the engine's data folder; None where this user cannot see it."""
    if not engine.host.startswith("unix://"):
        return None
    if engine.kind == "private":
        return layout().data_folder
    folder = docker_command.run(engine, "info", "--format", "{{.DockerRootDir}}").stdout.strip()
    try:
        return Path(folder) if folder and Path(folder).is_dir() else None
    except PermissionError:  # a parent folder is closed to this user
        return None
