"""The seconds of uncached builds, from which the time limits of CI jobs follow.

Kept in build/uncached.json between runs, because most runs find nearly everything in the cache.
"""

from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from rdma_images.core import atomic, files, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.step_files import BUILD, HISTORY

FILE = "uncached.json"
# The share of cached steps that an uncached build may have: an empty engine had 1 of 65.
CACHED_SHARE = 0.1

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_FORM = TypeAdapter(dict[str, Seconds])


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
