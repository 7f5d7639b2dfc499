"""build.json, the record of what was built: whether it is up to date, writing it, and finding it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from rdma_images.build.build_spec import BuildSpec
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import TOOL, BuildRecord, Image
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress, silent
from rdma_images.core.source import Supply
from rdma_images.core.step_files import BUILD_FILE
from rdma_images.engine import Engine, docker_command, prune
from rdma_images.inputs import availability, target_options
from rdma_images.inputs.project import Project
from rdma_images.render import bake, labels

if TYPE_CHECKING:
    from rdma_images.build.wheel_contexts import WheelContexts

REPOSITORY = "rdma-images"  # of every image in the engine: rdma-images/<target>:<tag>


@dataclass(frozen=True)
class BuildRun:
    """The part of build.json that all images of one run share."""

    revision: labels.Revision
    seconds: float
    programs: Mapping[str, str]  # versions of what built, by program


def local_reference(image: Image, stand_ins: Sequence[str]) -> str:
    """Return the name of an image in the engine; a rehearsal's ends with -rehearsal."""
    return f"{REPOSITORY}/{image.target}:{image.tag}{'-rehearsal' if stand_ins else ''}"


def up_to_date(specs: Sequence[BuildSpec], engine: Engine, progress: Progress = silent) -> dict[str, BuildRecord]:
    """Return, by image id, the builds of this folder that the engine has and whose inputs are the same.

    If another folder's image has taken the name of one, the name is given back.
    """
    recorded_builds: dict[str, BuildRecord] = {}
    for spec in specs:
        recorded = BUILD_FILE.read_if_valid(spec.image.id)
        if recorded and recorded.inputs == spec.inputs:
            recorded_builds[spec.image.id] = recorded
    dirty = {image_id for image_id, recorded in recorded_builds.items() if recorded.revision.endswith(labels.DIRTY)}
    if dirty and not labels.project_revision().commit.endswith(labels.DIRTY):
        # The same inputs are committed by now: build again, so that the label names the commit.
        recorded_builds = {image_id: row for image_id, row in recorded_builds.items() if image_id not in dirty}
    names = [name for recorded in recorded_builds.values() for name in (recorded.ref, recorded.digest)]
    digests = docker_command.image_digests(names, engine)
    present = {image_id: recorded for image_id, recorded in recorded_builds.items() if recorded.digest in digests}
    for recorded in present.values():
        progress(f"{recorded.ref} is up to date, its inputs are unchanged: nothing to build")
        if digests.get(recorded.ref) != recorded.digest:
            progress(f"{recorded.ref} was another image's name, and is this one's again")
            docker_command.output(engine, "tag", recorded.digest, recorded.ref)
    return present


def keep_other_folders_images(targets: Sequence[bake.ImageTarget], engine: Engine, progress: Progress) -> None:
    """Retag another folder's image whose name this build is about to take: without a name, an engine may drop it.

    `engine.prune` removes it, unless it is called in the folder that built the image.
    """
    own = {build.digest for target in targets if (build := BUILD_FILE.read_if_valid(target.image.id))}
    for name, digest in docker_command.image_digests([target.ref for target in targets], engine).items():
        if name != digest and digest not in own:
            kept = f"{name.rpartition(':')[0]}:{prune.KEPT_PREFIX}{digest.removeprefix('sha256:')[:12]}"
            docker_command.output(engine, "tag", digest, kept)
            progress(f"{name} is another folder's image: it stays as {kept}")


def record(
    spec: BuildSpec, supplies: Sequence[Supply], layers: "WheelContexts", run: BuildRun, engine: Engine
) -> BuildRecord:
    """Write build.json, and remove the image that the new one replaces from the engine."""
    earlier_build = BUILD_FILE.read_if_valid(spec.image.id)
    stand_ins = stand_ins_of(spec.image, supplies)
    name = local_reference(spec.image, stand_ins)
    digest = docker_command.image_digests([name], engine).get(name)
    if digest is None:
        raise RdmaImagesError(
            f"{name} was built, but the engine {engine.name} does not have it\n"
            "check the free space on the engine's disk"
        )
    build = BuildRecord(
        image_id=spec.image.id,
        ref=name,
        digest=digest,
        inputs=spec.inputs,
        stand_ins=stand_ins,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=run.seconds,
        revision=run.revision.commit,
        builder=dict(run.programs),
        layers=layers.blobs.get(spec.image.id, {}),
        layers_at=layers.registry,
        files=dict(spec.files),
    )
    BUILD_FILE.write(spec.image.id, build)
    if earlier_build and earlier_build.digest != digest:
        # As long as the replaced image exists, its layers stay on the disk. Docker refuses to remove one that is in
        # use or has another name: then somebody wants it, and it stays.
        docker_command.remove_images(engine, earlier_build.digest)
    return build


def stand_ins_of(image: Image, supplies: Sequence[Supply]) -> tuple[str, ...]:
    """Return the ids of sources that stand-ins replace, also in an image below.

    A stand-in for another version of a source replaces the one below.
    """
    stand_ins = availability.stand_in_ids(supplies)
    replaced = {source_id.rpartition("-")[0] for source_id in stand_ins}
    below = image.onto.base.stand_ins if image.onto else ()
    return tuple(sorted({*stand_ins, *(name for name in below if name.rpartition("-")[0] not in replaced)}))


def programs(engine: Engine, builder: str | None) -> dict[str, str]:
    """Return the versions of the programs that build, or the builder's name where it is not the engine's own."""
    where = {"builder": builder} if builder else {"docker": engine.version}
    return {TOOL: version(TOOL), "buildx": engine.buildx, **where}


def find_build(project: Project, target: str, pairs: Sequence[str] | None) -> tuple[BuildRecord, str]:
    """Return the build of a target's default row, or of that row with changes, and the command that builds it again.

    Args:
        project: The matrix and the facts.
        target: The target's name; empty for the only one of the matrix.
        pairs: "axis=value", as --set has them.

    Raises:
        RefusedError: It was not built; the matrix has several targets.
    """
    targets = list(project.matrix.targets)
    if not target and len(targets) > 1:
        raise RefusedError(
            f"which target? the matrix has {len(targets)}\nadd --target with one of {', '.join(targets)}"
        )
    (image,) = target_options.chosen_images(project, [target or targets[0]], False, pairs)
    command = f"{COMMAND} build {image.options}"
    if build := BUILD_FILE.read_if_valid(image.id):
        return build, command
    raise RefusedError(f"{image.id} was not built here\nrun `{command}` first")
