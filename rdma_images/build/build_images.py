"""Build images, the whole way from top to bottom: plan, inputs, layers, bake, validate.

`build`, `build_specs` and `_build_missing` are that way: each of their lines calls a step, a module beside this one.
Modules that only a build needs are imported when it begins, since the imports take as long as an idle run.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rdma_images import engine as engines
from rdma_images.build import build_record
from rdma_images.build.build_spec import BuildSpec, build_spec
from rdma_images.build.run_bake import BakeCommand, BuildOptions, log_file
from rdma_images.core import locking
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import BuildRecord, Image
from rdma_images.core.progress import Progress, silent
from rdma_images.core.source import Supply
from rdma_images.engine import Engine, docker_command
from rdma_images.inputs import availability, target_options
from rdma_images.inputs.project import Project
from rdma_images.render import bake, labels

if TYPE_CHECKING:
    from rdma_images.inspection.report import Report


class Choice(NamedTuple):
    """The images that options of a command line choose: --target, --all, --set."""

    targets: Sequence[str] | None = None
    all_rows: bool = False
    pairs: Sequence[str] | None = None  # "axis=value"


@dataclass(frozen=True)
class BuildResult:
    """The images, their builds and their reports, in one order; `reports` is empty if validation was left out."""

    images: Sequence[Image]
    builds: Sequence[BuildRecord]
    reports: "Sequence[Report]"


def build(
    project: Project, choice: Choice, options: BuildOptions, with_validation: bool = True, progress: Progress = silent
) -> BuildResult:
    """Plan the chosen images, build those that are not up to date, and validate all.

    Raises:
        RefusedPlanError: One of the images cannot work; carries the reasons.
        UnreachableSourcesError: A source does not answer; carries the table of all.
        RefusedError: The images have an input that is not allowed.
        RdmaImagesError: A download differs from its pin, or BuildKit fails: no image was made.
    """
    images = target_options.chosen_images(project, choice.targets, choice.all_rows, choice.pairs, options.rehearse)
    specs = [build_spec(image, project, options.rehearse, options.compression, progress) for image in images]
    engine = engines.ensure(progress)
    builds = build_specs(specs, project, engine, options, progress)
    if not with_validation:
        return BuildResult(images, builds, ())
    from rdma_images.validate.validate_image import validate

    pairs = zip(images, builds, strict=True)
    reports = [validate(build.ref, engine, image, build, progress=progress) for image, build in pairs]
    return BuildResult(images, builds, reports)


def build_specs(
    specs: Sequence[BuildSpec], project: Project, engine: Engine, options: BuildOptions, progress: Progress = silent
) -> tuple[BuildRecord, ...]:
    """Build the specs that are not up to date; return all builds, in order. Raises as `build` does."""
    builds = build_record.up_to_date(specs, engine, progress)
    if missing := [spec for spec in specs if spec.image.id not in builds]:
        supplies = require_sources(missing, project, engine, options, progress)
        with locking.hold("build", f"building {', '.join(spec.image.id for spec in missing)}", progress):
            # Asked again: while this run waited for the lock, another may have built the same images.
            builds |= build_record.up_to_date(missing, engine, progress)
            if missing := [spec for spec in missing if spec.image.id not in builds]:
                builds |= _build_missing(missing, supplies, project, engine, options, progress)
    return tuple(builds[spec.image.id] for spec in specs)


def require_sources(
    specs: Sequence[BuildSpec], project: Project, engine: Engine, options: BuildOptions, progress: Progress
) -> dict[str, tuple[Supply, ...]]:
    """Return where each source comes from, by image id, once all are known to answer.

    Downloads nothing but the images that a fabric is added to.

    Raises:
        UnreachableSourcesError: A source does not answer.
        RefusedError: The builder cannot build the platform, or an archive lacks a Debian package.
    """
    from rdma_images.engine import platforms
    from rdma_images.inputs import debian_index

    for spec in specs:
        if spec.image.onto:
            if options.builder:
                raise RefusedError(
                    f"--builder {options.builder}: {spec.image.onto.base.ref} is in this machine's engine, where it "
                    "was measured\nleave --builder out"
                )
            docker_command.ensure_image(engine, spec.image.onto.base.ref, progress)
    platforms.require_emulation((spec.image.platform for spec in specs), engine, options.builder)
    supplies = {
        spec.image.id: availability.find_supplies(spec.sources, project.mirrors, options.rehearse) for spec in specs
    }
    availability.require_reachable([supply for image_supplies in supplies.values() for supply in image_supplies])
    debian_index.require_packages((spec.image for spec in specs), project.facts, project.mirrors, progress)
    return supplies


def _build_missing(
    specs: Sequence[BuildSpec],
    supplies: Mapping[str, Sequence[Supply]],
    project: Project,
    engine: Engine,
    options: BuildOptions,
    progress: Progress,
) -> dict[str, BuildRecord]:
    """Build `specs`; `supplies` and the result are by image id."""
    from rdma_images.build import bake_targets, build_secrets, source_wheels, wheel_contexts
    from rdma_images.inputs.fetch import fetch

    start, revision = time.monotonic(), labels.project_revision()
    downloads = fetch([supply for supplied in supplies.values() for supply in supplied], project.mirrors, progress)
    contexts = bake_targets.Contexts(project.facts, downloads, progress)
    targets = bake_targets.image_targets(specs, supplies, contexts, project, revision, progress)
    file = bake.bake_file(targets, list(contexts.helpers.values()))
    with build_secrets.secret_files(specs, supplies, contexts.users, project.mirrors) as secrets:
        log_file().write_bytes(b"")
        baking = BakeCommand(engine, options, secrets, progress)
        build_system_layers = partial(baking.build_system_layers, file)
        stand_ins = {image_id: availability.stand_in_ids(supplied) for image_id, supplied in supplies.items()}
        compiling_ids = {spec.image.id for spec in specs if not source_wheels.are_kept(spec, stand_ins[spec.image.id])}
        layers = wheel_contexts.bring_wheel_layers(
            specs, project, engine, options, compiling_ids, build_system_layers, progress
        )
        file = bake.with_contexts(file, layers.contexts)
        compile_stage = partial(baking.export_stage, file)
        compiled = source_wheels.provide_source_wheels(specs, stand_ins, compile_stage, progress, options.layers)
        build_record.keep_other_folders_images(targets, engine, progress)
        baking.build_images(bake.with_contexts(file, compiled), targets)
    docker_command.remove_images(engine, *layers.image_refs)  # the built images keep the layers
    run = build_record.BuildRun(
        revision, round(time.monotonic() - start, 1), build_record.programs(engine, options.builder)
    )
    return {spec.image.id: build_record.record(spec, supplies[spec.image.id], layers, run, engine) for spec in specs}
