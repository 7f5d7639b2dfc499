"""Turn the matrix into CI jobs, one for each image."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from rdma_images import components
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import Image

# GitHub's names for its hosted machines; --runner gives others.
RUNNERS = {"linux/amd64": "ubuntu-24.04", "linux/arm64": "ubuntu-24.04-arm"}
MAX_JOBS = 256  # of one matrix: docs.github.com, "Usage limits" of Actions


@dataclass(frozen=True)
class CiJob:
    """One image to build. Flat and of strings and numbers, as a CI system's matrix wants it."""

    image: str  # id
    target: str
    platform: str
    runner: str
    arguments: str  # for `invoke build`, `validate` and `publish`: exactly this image
    cache: str  # name of its registry cache
    caches: str  # names of the caches worth reading, its own first, with blanks between


def jobs(
    images: Sequence[Image], all_images: Sequence[Image], runners: Mapping[str, str] | None = None
) -> tuple[CiJob, ...]:
    """Return a job for each of `images`, some of `all_images`.

    Raises RefusedError where `runners` names a platform that no image is for.
    """
    for platform in runners or ():
        if platform not in RUNNERS:
            raise RefusedError(f"--runner: no platform {platform!r}\n{suggestion(platform, RUNNERS)}")
    runner_by_platform = RUNNERS | dict(runners or {})
    return tuple(
        CiJob(
            image=image.id,
            target=image.target,
            platform=image.platform,
            runner=runner_by_platform[image.platform],
            arguments=image.options,
            cache=cache_name(image),
            caches=" ".join(_caches(image, all_images)),
        )
        for image in images
    )


def wheel_group(image: Image) -> tuple[str, ...]:
    """Return a key that images with the same wheel layers share."""
    deciding_components = (component.name for component in components.ALL if component.decides_wheels)
    return (
        image.platform,
        *(image.components[name].version for name in deciding_components if name in image.components),
    )


def cache_name(image: Image) -> str:
    """Return the name of an image's registry cache, short enough for a tag."""
    return f"{image.target}-{sha256(image.id.encode()).hexdigest()[:12]}"


def _caches(image: Image, all_images: Sequence[Image]) -> list[str]:
    return [
        cache_name(image),
        *(
            cache_name(other)
            for other in all_images
            if other.id != image.id and wheel_group(other) == wheel_group(image)
        ),
    ]


def as_github(ci_jobs: Sequence[CiJob]) -> str:
    """Return the jobs for `strategy.matrix`. Raises RefusedError for too many."""
    if len(ci_jobs) > MAX_JOBS:
        raise RefusedError(
            f"{len(ci_jobs)} images are more than the {MAX_JOBS} jobs of one GitHub matrix\n"
            "split it with --target, a workflow call for each"
        )
    body: dict[str, Any] = {"include": [asdict(job) for job in ci_jobs]}
    return json.dumps(body, separators=(",", ":"))
