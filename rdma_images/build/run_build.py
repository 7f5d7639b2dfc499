"""Run a build: download, make contexts, bake all images at once, write build.json."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from rdma_images import components
from rdma_images.build import added_files, package_contexts, run_bake, source_wheels, wheel_contexts
from rdma_images.build.build_images import image_digests, ref
from rdma_images.build.build_secrets import provide_secrets
from rdma_images.build.build_spec import BuildSpec
from rdma_images.build.contexts import Contexts
from rdma_images.build.run_bake import Options
from rdma_images.core import atomic, disk_space, locking, paths
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import TOOL, Build, Image
from rdma_images.core.progress import Progress, silent
from rdma_images.core.source import Source, Supply
from rdma_images.core.step_files import BUILD
from rdma_images.engine import Engine, docker_command, platforms
from rdma_images.engine.layout import layout
from rdma_images.inputs import debian_index, debian_lock, download_store, preflight, sources
from rdma_images.inputs.fetch import fetch
from rdma_images.render import bake, labels
from rdma_images.selection.project import Project

# One line for each node of a builder. buildx before 0.13 writes "Buildkit:".
_BUILDKIT = re.compile(r"^build ?kit(?: version)?:\s*(\S+)", re.IGNORECASE | re.MULTILINE)
# Bytes on the engine's disk for each byte of a wheel that is new to the engine, by torch 2.15.0's wheels (3.0 GB
# downloaded, 5.3 GB unpacked). As a layer that is handed over: compressed, and unpacked once. By the Dockerfile's
# stages (19 GB of engine data at the end): unpacked in the stage that installs it, in the stage of its layer and in the
# image, and compressed in the layer. Images share wheels, also unpacked.
HANDED_OVER, BY_STAGES = 3, 7
SYSTEM = 2 * disk_space.GB  # the system above the wheels, in its stages and in the image; 0.5 GB each
# The components that decide the wheels: an image in the engine with the same ones has the same wheels.
WHEEL_DECIDERS = tuple(component.name for component in components.ALL if component.decides_wheels)


def build(
    specs: Sequence[BuildSpec],
    project: Project,
    engine: Engine,
    options: Options,
    progress: Progress,
    lock: locking.HeldLock,
) -> dict[str, Build]:
    """Download, bake and write build.json; return the builds by image id.

    `lock` is let go while packages are compiled: other builds need not wait for that.

    Raises as `build_images.build` does.
    """
    start = time.monotonic()
    revision = labels.project_revision()
    supplies, wheels = _bake(specs, project, engine, options, revision, progress, lock)
    seconds = round(time.monotonic() - start, 1)
    programs = builder_versions(engine, options.builder)
    return {
        spec.image.id: _record_and_remove_replaced(
            spec, supplies[spec.image.id], engine, seconds, revision, programs, wheels
        )
        for spec in specs
    }


def build_layout(
    spec: BuildSpec,
    project: Project,
    engine: Engine,
    options: Options,
    revision: labels.Revision,
    progress: Progress = silent,
) -> None:
    """Build an image into the folder `options.layout`, without the engine or build.json.

    Raises as `build_images.build` does.
    """
    with locking.hold("build", f"building {spec.image.id} again", progress) as lock:
        _bake([spec], project, engine, options, revision, progress, lock)


def _bake(
    specs: Sequence[BuildSpec],
    project: Project,
    engine: Engine,
    options: Options,
    revision: labels.Revision,
    progress: Progress,
    lock: locking.HeldLock,
) -> tuple[dict[str, tuple[Supply, ...]], wheel_contexts.WheelContexts]:
    """Download and bake; return the supplies by image id, and the wheels' layers."""
    supplies = _require_inputs(specs, project, engine, options, progress)
    contexts = _download(supplies, project, progress)
    targets = _targets(specs, supplies, contexts, project, revision, progress)
    file = bake.bake_file(targets, list(contexts.helpers.values()))
    with _secret_files(specs, supplies, contexts, project) as secret_files:
        baking = run_bake.BakeCommand(engine, options, secret_files)

        def build_system_layers(ids: Sequence[str]) -> None:
            if not options.no_cache:  # else the image would not take them from there
                baking.build_system_layers(file, ids)

        wheels = wheel_contexts.provide_contexts(specs, project, engine, options, build_system_layers, progress)
        with_wheels = bake.with_contexts(file, wheels.contexts)

        stand_ins = {image_id: preflight.rehearsed_ids(supplied) for image_id, supplied in supplies.items()}
        with _unlocked_to_compile(specs, stand_ins, lock):
            compile_stage = partial(baking.export_stage, with_wheels)
            compiled = source_wheels.provide_contexts(specs, stand_ins, compile_stage, progress, options.layers)
        with_all = bake.with_contexts(with_wheels, compiled)
        baking.build_images(with_all, targets)
    if not wheel_contexts.are_names_kept():
        docker_command.remove_images(engine, *wheels.image_refs)  # the built images keep the layers
    return supplies, wheels


def _require_inputs(
    specs: Sequence[BuildSpec], project: Project, engine: Engine, options: Options, progress: Progress
) -> dict[str, tuple[Supply, ...]]:
    """Check engine, sources and disk space; return the supplies by image id.

    Raises RefusedError or RdmaImagesError for the first condition that does not hold; nothing is downloaded but the
    images that a fabric is added to.
    """
    _provide_existing(specs, engine, options, progress)
    platforms.require((spec.image.platform for spec in specs), engine, options.builder, progress)
    supplies = {
        spec.image.id: preflight.find_supplies(spec.sources, project.mirrors, options.rehearse) for spec in specs
    }
    preflight.require([supply for image_supplies in supplies.values() for supply in image_supplies])
    debian_index.require_packages((spec.image for spec in specs), project.facts, project.mirrors, progress)
    require_space(specs, engine, wheel_contexts.are_usable(engine, options))
    return supplies


def _download(supplies: Mapping[str, Sequence[Supply]], project: Project, progress: Progress) -> Contexts:
    """Download the sources of all images, and return the contexts that have them."""
    downloads = fetch([supply for supplied in supplies.values() for supply in supplied], project.mirrors, progress)

    def bootstrapped(base: str, platform: str) -> Path:
        return debian_lock.bootstrapped(base, platform, project.mirrors, progress)

    return Contexts(project.facts, lambda source: downloads[source.id], bootstrapped)


@contextmanager
def _secret_files(
    specs: Sequence[BuildSpec], supplies: Mapping[str, Sequence[Supply]], contexts: Contexts, project: Project
) -> Iterator[dict[str, dict[str, Path]]]:
    """Yield the files of secrets by target of the bake file; they exist inside the block."""
    with ExitStack() as stack:
        files = {
            spec.image.id: stack.enter_context(
                provide_secrets(supplies[spec.image.id], project.mirrors, spec.image.secrets, spec.image.indexes)
            )
            for spec in specs
        }
        by_helper = {helper: files[image_id] for helper, image_id in contexts.users.items()}
        yield {bake.image_name(image_id): image_files for image_id, image_files in files.items()} | by_helper


@contextmanager
def _unlocked_to_compile(
    specs: Sequence[BuildSpec], rehearsed: Mapping[str, Sequence[str]], lock: locking.HeldLock
) -> Iterator[None]:
    """Release the build lock for the block where a package has to be compiled."""
    if source_wheels.are_complete(specs, rehearsed):
        yield
    else:
        with wheel_contexts.keep_names(), lock.released():
            yield


def _provide_existing(specs: Sequence[BuildSpec], engine: Engine, options: Options, progress: Progress) -> None:
    """Bring images of `--onto` into the engine. Raises RefusedError for another builder."""
    for spec in specs:
        if spec.image.onto and options.builder:
            raise RefusedError(
                f"--builder {options.builder}: {spec.image.onto.base.ref} is in this machine's engine, where it was "
                "measured\nleave --builder out"
            )
        if spec.image.onto:
            docker_command.ensure_image(engine, spec.image.onto.base.ref, progress)


def replaced_sources(image: Image, supplies: Sequence[Supply]) -> tuple[str, ...]:
    """Return the ids of sources that stand-ins replace, also in an image below.

    A stand-in of another version for the same source is in the place of that one's.
    """
    stood_in = preflight.rehearsed_ids(supplies)
    replaced = {source_id.rpartition("-")[0] for source_id in stood_in}
    below = image.onto.base.rehearsal if image.onto else ()
    return tuple(sorted({*stood_in, *(name for name in below if name.rpartition("-")[0] not in replaced)}))


def bake_file(specs: Sequence[BuildSpec], project: Project, rehearse: bool) -> Path:
    """Write build/bake.json for `specs` without downloads, and return its path."""

    def base_tar(base: str, platform: str) -> Path:
        base_record = debian_lock.last_bootstrapped(base, platform)
        return paths.state_folder() / "bases" / (base_record.tar if base_record else f"{base}.tar")

    def download_folder(source: Source) -> Path:
        file = download_store.cached_file(source)
        return file.parent if file else download_store.root() / source.id

    supplies = {spec.image.id: preflight.find_supplies(spec.sources, project.mirrors, rehearse) for spec in specs}
    contexts = Contexts(project.facts, download_folder, base_tar)
    targets = _targets(specs, supplies, contexts, project, labels.project_revision())
    path = paths.BUILD / "bake.json"
    atomic.write(path, bake.bake_text(bake.bake_file(targets, list(contexts.helpers.values()))))
    return path


def _targets(
    specs: Sequence[BuildSpec],
    supplies: Mapping[str, Sequence[Supply]],
    contexts: Contexts,
    project: Project,
    revision: labels.Revision,
    progress: Progress = silent,
) -> list[bake.ImageTarget]:
    """Return the images of the bake file."""
    targets = []
    for spec in specs:
        stood_in = replaced_sources(spec.image, supplies[spec.image.id])
        targets.append(
            bake.ImageTarget(
                image=spec.image,
                dockerfile=spec.dockerfile,
                ref=ref(spec.image, stood_in),
                contexts=contexts.for_image(spec.image, supplies[spec.image.id])
                | added_files.contexts(spec.dockerfile.read_text(encoding="utf-8"))
                | package_contexts.contexts(spec.image, spec.lock, project.mirrors, progress),
                labels=labels.labels(
                    spec.image,
                    project.matrix.target(spec.image.target).summary,
                    revision,
                    stood_in,
                    spec.lock,
                    sources.locked_archive(spec.sources),
                ),
                created=revision.time,
            )
        )
    return targets


def builder_versions(engine: Engine, builder: str | None) -> dict[str, str]:
    """Return the versions of the programs that built, with BuildKit for a builder."""
    versions_of_tool = {TOOL: version(TOOL)}
    if not builder:
        return {**versions_of_tool, "buildx": engine.buildx, "docker": engine.version}
    output = docker_command.run(engine, "buildx", "inspect", builder).stdout
    versions = sorted(set(_BUILDKIT.findall(output)))
    return {**versions_of_tool, "buildx": engine.buildx, "buildkit": " and ".join(versions) or "unknown"}


def _record_and_remove_replaced(
    spec: BuildSpec,
    supplies: Sequence[Supply],
    engine: Engine,
    seconds: float,
    revision: labels.Revision,
    programs: Mapping[str, str],
    wheels: wheel_contexts.WheelContexts,
) -> Build:
    """Write build.json, and remove the image that the new one replaces from the engine."""
    earlier_build = BUILD.read_if_valid(spec.image.id)
    stood_in = replaced_sources(spec.image, supplies)
    name = ref(spec.image, stood_in)
    digest = image_digests([name], engine).get(name)
    if digest is None:
        raise RdmaImagesError(
            f"{name} was built, but the engine {engine.name} does not have it\n"
            "check the free space on the engine's disk"
        )
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    record = Build(
        image_id=spec.image.id,
        ref=name,
        digest=digest,
        inputs=spec.inputs,
        rehearsal=stood_in,
        finished=finished,
        seconds=seconds,
        revision=revision.commit,
        builder=dict(programs),
        layers=wheels.blobs.get(spec.image.id, {}),
        layers_at=wheels.registry,
        files=dict(spec.files),
    )
    BUILD.write(spec.image.id, record)
    if earlier_build and earlier_build.digest != digest:
        # As long as the replaced image exists, its layers stay on the disk. Docker refuses to remove one that is in
        # use or has another name: then somebody wants it, and it stays.
        docker_command.remove_images(engine, earlier_build.digest)
    return record


def require_space(specs: Sequence[BuildSpec], engine: Engine, handed_over: bool) -> None:
    """Raise RdmaImagesError where the engine's disk lacks space for building `specs`.

    The error says what is needed, what is free, where, and what to do.

    Args:
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
