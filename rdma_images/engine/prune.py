"""Remove images that no target asks for any more: the engine's own garbage collection removes no image."""

import json
from collections.abc import Collection
from dataclasses import dataclass

from rdma_images.engine import Engine, docker_command

LABEL = "io.rdma-images.image-id"
# Of an image of wheels' layers, which a build leaves behind where it fails or is ended, and of what is built on it.
LAYERS = "io.rdma-images.layers"


@dataclass(frozen=True)
class EngineImage:
    """One of our images in the engine."""

    digest: str
    ref: str  # empty for one whose name a newer image took
    image_id: str  # empty for wheels' layers


def superfluous(engine: Engine, image_ids: Collection[str]) -> tuple[EngineImage, ...]:
    """Our images in the engine that have lost their name, or whose id is not among `wanted`.

    With them the images of wheels' layers that a failed build left for the next one.
    """
    digests = [digest for label in (LABEL, LAYERS) for digest in docker_command.labelled(engine, label)]
    if not digests:
        return ()
    inspected = json.loads(docker_command.output(engine, "image", "inspect", *dict.fromkeys(digests)))
    images = [
        EngineImage(image["Id"], name, image["Config"]["Labels"].get(LABEL, ""))
        for image in inspected
        for name in image["RepoTags"] or [""]
    ]
    return tuple(candidate for candidate in images if not candidate.ref or candidate.image_id not in image_ids)


def remove(engine: Engine, images: Collection[EngineImage], cache: bool = False) -> None:
    """Remove images, and with `cache` all that the builder keeps. Raises RdmaImagesError for an image in use."""
    for image in images:
        docker_command.output(engine, "image", "rm", image.ref or image.digest)
    if cache:
        docker_command.output(engine, "buildx", "prune", "--all", "--force")
