"""Turn the matrix into CI jobs: one for each image, with the machine it needs and the time it may take."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from rdma_images import components
from rdma_images.core import atomic, files, paths
from rdma_images.core.errors import RdmaImagesError, RefusedError, suggestion
from rdma_images.core.image import Image
from rdma_images.core.step_files import BUILD, HISTORY
from rdma_images.plan.matrix import Matrix

# GitHub's names for its hosted machines; --runner gives others.
RUNNERS = {"linux/amd64": "ubuntu-24.04", "linux/arm64": "ubuntu-24.04-arm"}
UNMEASURED_TIMEOUT = 120  # minutes: no uncached build is known, neither of the image nor of one with the same wheels
MIN_TIMEOUT, MAX_TIMEOUT = 20, 360  # minutes; GitHub ends a hosted job after MAX_TIMEOUT
MAX_JOBS = 256  # of one matrix: docs.github.com, "Usage limits" of Actions
FILE = "uncached.json"  # kept between runs: most find nearly everything in the cache
# The share of cached steps that an uncached build may have: an empty engine had 1 of 65.
CACHED_SHARE = 0.1

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_FORM = TypeAdapter(dict[str, Seconds])


@dataclass(frozen=True)
class CiJob:
    """One image to build. Flat and of strings and numbers, as a CI system's matrix wants it."""

    image: str  # id
    target: str
    platform: str
    runner: str
    timeout: int  # minutes
    arguments: str  # for `invoke build`, `validate` and `publish`: exactly this image
    cache: str  # name of its registry cache
    caches: str  # names of the caches worth reading, its own first, with blanks between


def jobs(
    images: Sequence[Image],
    all_images: Sequence[Image],
    matrix: Matrix,
    slowest: Mapping[str, float],
    runners: Mapping[str, str] | None = None,
) -> tuple[CiJob, ...]:
    """Return a job for each of `images`, some of `all_images`. `slowest` has the seconds of uncached builds by image.

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
            timeout=timeout_minutes(_uncached(image, all_images, slowest)),
            arguments=arguments(image, matrix),
            cache=cache_name(image),
            caches=" ".join(_caches(image, all_images)),
        )
        for image in images
    )


def timeout_minutes(uncached: float | None) -> int:
    """Return the minutes that a job may take: three times the seconds of an uncached build, and ten for all around it.

    Cached builds do not count: a job whose cache is gone would exceed their limit.
    """
    if uncached is None:
        return UNMEASURED_TIMEOUT
    return max(MIN_TIMEOUT, math.ceil(min(MAX_TIMEOUT, 3 * uncached / 60 + 10)))


def arguments(image: Image, matrix: Matrix) -> str:
    """Return the options of `invoke build` that select exactly this image."""
    default = matrix.target(image.target).complete()
    changes = [f"{name}={value}" for name, value in image.axes.items() if default.get(name) != value]
    words = ["--target", image.target, *(word for change in changes for word in ("--set", change))]
    return shlex.join(words)


def wheel_group(image: Image) -> tuple[str, ...]:
    """Return a key equal for images that share every wheel layer: the same torch, NCCL, Python and platform."""
    deciding_components = (component.name for component in components.ALL if component.decides_wheels)
    return (
        image.platform,
        *(image.components[name].version for name in deciding_components if name in image.components),
    )


def cache_name(image: Image) -> str:
    """Return the name of an image's registry cache, short enough for a tag."""
    return f"{image.target}-{sha256(image.id.encode()).hexdigest()[:12]}"


def _uncached(image: Image, all_images: Sequence[Image], slowest: Mapping[str, float]) -> float | None:
    """Return the seconds of the slowest uncached build of an image, or of those with the same wheels."""
    same_wheels = [
        slowest[other.id] for other in all_images if other.id in slowest and wheel_group(other) == wheel_group(image)
    ]
    return slowest.get(image.id, max(same_wheels, default=None))


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
    """Return the jobs as the value of `strategy.matrix`. Raises RefusedError for more than GitHub takes."""
    if len(ci_jobs) > MAX_JOBS:
        raise RefusedError(
            f"{len(ci_jobs)} images are more than the {MAX_JOBS} jobs of one GitHub matrix\n"
            "split it with --shard 1/2 and --shard 2/2, a workflow call for each"
        )
    body: dict[str, Any] = {"include": [asdict(job) for job in ci_jobs]}
    return json.dumps(body, separators=(",", ":"))


def slowest_builds() -> dict[str, float]:
    """Return image id -> seconds of its slowest known uncached build; empty where there is no file.

    Raises RdmaImagesError for a broken file.
    """
    path = paths.BUILD / FILE
    try:
        return _FORM.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValidationError:
        raise RdmaImagesError(f"{path}: not a table of seconds by image\nremove it") from None


def record_durations() -> dict[str, float]:
    """Add the builds under build/images/ to the table, each where it is the slowest; return the table."""
    seconds_by_image = slowest_builds()
    for image_id in (folder.name for folder in files.list_folder(paths.IMAGES) if files.exists(folder)):
        if (seconds := uncached_seconds(image_id)) is not None:
            seconds_by_image[image_id] = max(seconds, seconds_by_image.get(image_id, 0.0))
    atomic.write(paths.BUILD / FILE, _FORM.dump_json(seconds_by_image, indent=2).decode() + "\n")
    return seconds_by_image


def uncached_seconds(image_id: str) -> float | None:
    """Return the seconds of an image's last build; None unless BuildKit's record shows few cached steps."""
    build, record = BUILD.read(image_id), HISTORY.read(image_id)
    if build is None or record is None or record.digest != build.digest or not record.steps:
        return None
    return build.seconds if record.cached <= CACHED_SHARE * record.steps else None
