"""Let go of images that nobody asks for any more: the engine's own collection never touches an image."""

import json
import subprocess
from collections.abc import Collection
from dataclasses import dataclass

from rdma_images.engine import Engine
from rdma_images.errors import RdmaImagesError

LABEL = "io.rdma-images.image-id"


@dataclass(frozen=True)
class Found:
    """One of our images in the engine."""

    digest: str
    ref: str  # empty for one whose name a newer image took
    image_id: str


def superfluous(engine: Engine, wanted: Collection[str]) -> tuple[Found, ...]:
    """Our images in the engine that have lost their name, or whose id is not among `wanted`."""
    digests = _docker(engine, "image", "ls", "--no-trunc", "--quiet", "--filter", f"label={LABEL}").split()
    if not digests:
        return ()
    told = json.loads(_docker(engine, "image", "inspect", *dict.fromkeys(digests)))
    found = [
        Found(image["Id"], next(iter(image["RepoTags"] or ()), ""), image["Config"]["Labels"][LABEL]) for image in told
    ]
    return tuple(one for one in found if not one.ref or one.image_id not in wanted)


def remove(engine: Engine, images: Collection[Found], cache: bool = False) -> None:
    """Remove images, and with `cache` all that the builder keeps. Raises RdmaImagesError for an image in use."""
    for one in images:
        _docker(engine, "image", "rm", one.ref or one.digest)
    if cache:
        _docker(engine, "buildx", "prune", "--all", "--force")


def _docker(engine: Engine, *arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], env=engine.environ(), capture_output=True, text=True)
    if done.returncode:
        raise RdmaImagesError(f"docker {arguments[0]} {arguments[1]}: {done.stderr.strip()}")
    return done.stdout
