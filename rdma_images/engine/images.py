"""Find images in an engine: by name, and by the digest that a build recorded."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Build
from rdma_images.core.progress import Progress
from rdma_images.engine import Engine, docker_command

MAX_QUESTIONS = 8  # to an engine, at once


def image_digests(names: Sequence[str], engine: Engine) -> dict[str, str]:
    """Return the digests of an engine's images by name; with the containerd store, of their manifests.

    Args:
        names: Names with tags, or digests.
        engine: The engine; a name that it does not have has no entry.
    """
    if not names:
        return {}
    # One after the other, an engine took 0.01 s for each.
    with ThreadPoolExecutor(min(len(names), MAX_QUESTIONS)) as pool:
        digests = dict(zip(names, pool.map(partial(docker_command.image_id, engine), names), strict=True))
    if all(digests.values()):
        return digests
    # Not every engine has a socket to ask. Where an image is missing the command fails, but still prints the others.
    result = docker_command.run(
        engine, "image", "inspect", "--format", "{{.Id}}{{range .RepoTags}} {{.}}{{end}}", *names
    )
    lines = filter(None, map(str.split, result.stdout.splitlines()))
    return {name: digest for digest, *tags in lines for name in (digest, *tags) if name in names}


def built_image(build: Build, engine: Engine, build_command: str, progress: Progress) -> str:
    """Return by what to address the image that this folder's build recorded: its name, or else its digest.

    Folders may have targets of one name on one engine: the name is then the image's that was built last.

    Args:
        build: The build's record.
        engine: The engine that has the image, or had it.
        build_command: The command that builds the image again.
        progress: Gets a line where the name is not the image's any more.

    Raises:
        RefusedError: The engine does not have the image any more.
    """
    digests = image_digests([build.ref, build.digest], engine)
    named = digests.get(build.ref)
    if named == build.digest:
        return build.ref
    lost = f"the name {build.ref} was given to another image" if named else f"the name {build.ref} is gone"
    if build.digest in digests:
        progress(f"{lost}; this folder's build is {build.digest}")
        return build.digest
    raise RefusedError(
        f"the engine does not have the image that this folder built, {build.digest}, any more: {lost}\n"
        f"run `{build_command}`"
    )
