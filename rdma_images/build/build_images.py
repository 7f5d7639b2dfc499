"""Build the ordered images in an engine, those that are not up to date."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rdma_images.build.build_spec import BuildSpec
from rdma_images.build.run_bake import IMAGE, Options
from rdma_images.core import locking
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Build, Image
from rdma_images.core.progress import Progress, silent
from rdma_images.core.step_files import BUILD
from rdma_images.engine import Engine, docker_command, image_id
from rdma_images.render import labels
from rdma_images.selection.project import Project

MAX_QUESTIONS = 8  # to an engine, at once
REPOSITORY = "rdma-images"  # of every image in the engine: rdma-images/<target>:<tag>


def build(
    specs: Sequence[BuildSpec], project: Project, engine: Engine, options: Options, progress: Progress = silent
) -> tuple[Build, ...]:
    """Build the images of `specs` that are not up to date; return all builds, in order.

    Raises UnreachableError with the table of all sources where one does not answer, RefusedError where images would
    overwrite one another's caches, and RdmaImagesError where a download differs from its pin, the disk is too small or
    BuildKit fails. After an error no image was made and no build.json was written.
    """
    shared_cache = next((cache for cache in options.cache_to if IMAGE not in cache), None)
    if shared_cache and len(specs) > 1:
        raise RefusedError(
            f"--cache-to {shared_cache}: {len(specs)} images would overwrite each other's cache\n"
            f"put {IMAGE} into the address, for each image's id"
        )
    ready = up_to_date_builds(specs, engine)
    if len(ready) == len(specs):
        _report_up_to_date(ready, progress)
    else:
        with locking.hold("build", f"building {', '.join(spec.image.id for spec in specs)}", progress) as lock:
            # Asked again: while this run waited for the lock, another may have built the same images.
            ready = up_to_date_builds(specs, engine)
            _report_up_to_date(ready, progress)
            if missing := [spec for spec in specs if spec.image.id not in ready]:
                # Here, because its imports take as long as having nothing to do.
                from rdma_images.build import run_build

                ready |= run_build.build(missing, project, engine, options, progress, lock)
    return tuple(ready[spec.image.id] for spec in specs)


def ref(image: Image, stood_in: Sequence[str]) -> str:
    """Return the name of an image in the engine; a rehearsal's ends with -rehearsal."""
    return f"{REPOSITORY}/{image.target}:{image.tag}{'-rehearsal' if stood_in else ''}"


def up_to_date_builds(specs: Sequence[BuildSpec], engine: Engine) -> dict[str, Build]:
    """Return, by id, the builds in the engine that have the same inputs."""
    recorded_builds: dict[str, Build] = {}
    for spec in specs:
        recorded = BUILD.read_if_valid(spec.image.id)
        if recorded and recorded.inputs == spec.inputs:
            recorded_builds[spec.image.id] = recorded
    uncommitted = [image_id for image_id, recorded in recorded_builds.items() if _is_uncommitted(recorded.revision)]
    if uncommitted and not _is_uncommitted(labels.project_revision().commit):
        # The same inputs are committed by now: build again, so that the label names the commit.
        for uncommitted_id in uncommitted:
            del recorded_builds[uncommitted_id]
    digests = image_digests([recorded.ref for recorded in recorded_builds.values()], engine)
    return {
        recorded_id: recorded
        for recorded_id, recorded in recorded_builds.items()
        if digests.get(recorded.ref) == recorded.digest
    }


def _is_uncommitted(revision: str) -> bool:
    return revision.endswith("-dirty")


def _report_up_to_date(ready: Mapping[str, Build], progress: Progress) -> None:
    for ready_build in ready.values():
        progress(f"{ready_build.ref} is up to date, its inputs are unchanged: nothing to build")


def image_digests(names: Sequence[str], engine: Engine) -> dict[str, str]:
    """Return the engine's images by name: with the containerd store, manifest digests."""
    if not names:
        return {}
    # One after the other, an engine took 0.01 s for each.
    with ThreadPoolExecutor(min(len(names), MAX_QUESTIONS)) as pool:
        digests = dict(zip(names, pool.map(partial(image_id, engine), names), strict=True))
    if all(digests.values()):
        return digests
    # Not every engine has a socket to ask. Where an image is missing the command fails, but still prints the others.
    result = docker_command.run(
        engine, "image", "inspect", "--format", "{{.Id}}{{range .RepoTags}} {{.}}{{end}}", *names
    )
    lines = filter(None, map(str.split, result.stdout.splitlines()))
    return {name: digest for digest, *tags in lines for name in tags}
