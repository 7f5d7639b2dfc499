"""Remove images that no target needs any more, which no engine does by itself."""

import json
import re
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rdma_images.core import locking
from rdma_images.core.image import ID_LABEL, LAYERS_LABEL, TARGET_LABEL
from rdma_images.core.progress import Progress
from rdma_images.core.step_files import BUILD_FILE
from rdma_images.engine import Engine, docker_command

KEPT_PREFIX = "kept-"  # begins the tag of an image whose name a build of another folder has taken
NO_IMAGE = re.compile("No such image")  # Docker's answer about one that somebody removed meanwhile
PRUNE_SECONDS = 3600.0  # seconds that the engine may take to remove tens of gigabytes
# Docker 26.1: "conflict: unable to delete REF (must be forced) - container ID is using its referenced image IMAGE".
IN_USE = re.compile(r"unable to (?:delete|remove).*?container ([0-9a-f]{12,64})", re.DOTALL)


@dataclass(frozen=True)
class EngineImage:
    """One of our images in the engine."""

    digest: str
    ref: str  # empty for one whose name a newer image took
    image_id: str  # empty for wheels' layers
    target: str = ""

    @property
    def was_replaced(self) -> bool:
        """Return whether a newer image took its name."""
        return not self.ref or self.ref.rpartition(":")[2].startswith(KEPT_PREFIX)


def prune_images(
    engine: Engine, image_ids: Collection[str], targets: Collection[str] | None, cache: bool, progress: Progress
) -> list[str]:
    """Remove the images that are not needed any more; return a line about each, also of those that stay.

    Args:
        image_ids: Of the default matrix' images, which stay.
        targets: This folder's, whose images alone are removed; None: those of every folder.
        cache: Also empty the builder's cache.
        progress: Gets a line while another build is waited for, which counts on the wheels' layers that it loaded.
    """
    with locking.hold("build", "pruning the engine", progress):
        builds = filter(None, map(BUILD_FILE.read_if_valid, image_ids))
        unused = unused_images(engine, image_ids, [build.digest for build in builds])
        foreign = () if targets is None else in_other_targets(unused, targets)
        superfluous = tuple(image for image in unused if image not in foreign)
        in_use = remove(engine, superfluous, cache)
    reason = "this folder plans no image of target"
    lines = [f"kept {image.ref}: {reason} {image.target}; --all-targets removes it" for image in foreign]
    for image in superfluous:
        name = image.ref or image.digest
        lines.append(f"kept {name}: container {in_use[image]} uses it" if image in in_use else f"removed {name}")
    lines += ["emptied the builder's cache"] if cache else []
    return lines or ["nothing to remove"]


def unused_images(engine: Engine, image_ids: Collection[str], built: Collection[str] = ()) -> tuple[EngineImage, ...]:
    """Return our images whose id is not among `image_ids`, and those that lost their name and are not in `built`.

    Also return the images of wheels' layers that a failed build left for the next one.

    Args:
        image_ids: Of the images that stay.
        built: Digests that this folder's builds recorded.
    """
    labels = (ID_LABEL, LAYERS_LABEL)
    digests = [digest for label in labels for digest in docker_command.images_with_labels(engine, label)]
    if not digests:
        return ()
    inspected = json.loads(_run_docker(engine, "image", "inspect", *dict.fromkeys(digests)).stdout)
    images = [
        EngineImage(
            image["Id"], name, *(image["Config"]["Labels"].get(label, "") for label in (ID_LABEL, TARGET_LABEL))
        )
        for image in inspected
        for name in image["RepoTags"] or [""]
    ]
    return tuple(
        image
        for image in images
        if image.image_id not in image_ids or (image.was_replaced and image.digest not in built)
    )


def in_other_targets(images: Iterable[EngineImage], targets: Collection[str]) -> tuple[EngineImage, ...]:
    """Return named images of other targets: another folder may need them."""
    return tuple(image for image in images if image.ref and image.target and image.target not in targets)


def remove(engine: Engine, images: Collection[EngineImage], cache: bool = False) -> dict[EngineImage, str]:
    """Remove images, and with `cache` all that the builder keeps.

    Returns:
        the images that stay, since a container uses them: each with the container's id.

    Raises:
        RdmaImagesError: the engine does not remove an image for another reason, or the cache.
    """
    in_use = {}
    for image in images:
        if container := IN_USE.search(_run_docker(engine, "image", "rm", image.ref or image.digest).stderr):
            in_use[image] = container[1]
    if cache:
        _empty_cache(engine)
    return in_use


def _empty_cache(engine: Engine) -> None:
    """Empty the builder's cache by the API, which works on a full disk, too."""
    try:
        docker_command.request(engine, "POST", "/build/prune?all=true", PRUNE_SECONDS)
    except OSError:  # it has no socket here
        docker_command.output(engine, "builder", "prune", "--all", "--force")


def _run_docker(engine: Engine, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Return a docker command about images, which may be gone by now or in use.

    Raises RdmaImagesError where it fails for another reason.
    """
    result = docker_command.run(engine, *arguments)
    lines = [line for line in result.stderr.splitlines() if line]
    is_gone = bool(lines) and all(NO_IMAGE.search(line) for line in lines)
    if result.returncode and not is_gone and not IN_USE.search(result.stderr):
        raise docker_command.failure(engine, result, *arguments)
    return result
