"""How long images took to build where no cache helped: what the time limit of a job is taken from.

Kept in build/uncached.json from run to run, for the run after a change builds little and is no measure.
"""

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rdma_images import atomic, paths
from rdma_images.errors import RdmaImagesError
from rdma_images.model import Build, Provenance
from rdma_images.publish.item import read

FILE = "uncached.json"
# Of the steps of a build, the share that a cache may have answered: seen in an engine without one, 1 of 65.
LITTLE = 0.1

_FORM = TypeAdapter(dict[str, float])


def slowest(file: Path | None = None) -> dict[str, float]:
    """Image id -> seconds of its slowest uncached build that is known; empty where nothing was kept.

    Raises RdmaImagesError for a broken file.
    """
    path = file or paths.BUILD / FILE
    try:
        return _FORM.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValidationError:
        raise RdmaImagesError(f"{path}: is no table of seconds by image: remove it") from None


def keep(file: Path | None = None) -> dict[str, float]:
    """Add the builds under build/images/ to what was kept, each where it is the slowest; the whole table."""
    known = slowest(file)
    for image_id in sorted(folder.name for folder in paths.IMAGES.glob("*")):
        if (seconds := uncached(image_id)) is not None:
            known[image_id] = max(seconds, known.get(image_id, 0.0))
    atomic.write(file or paths.BUILD / FILE, _FORM.dump_json(known, indent=2).decode() + "\n")
    return known


def uncached(image_id: str) -> float | None:
    """Seconds of the last build of an image where BuildKit's record says that it had next to nothing from a cache."""
    build, record = read(image_id, "build.json", Build), read(image_id, "buildkit.json", Provenance)
    if build is None or record is None or record.digest != build.digest or not record.steps:
        return None
    return build.seconds if record.cached <= LITTLE * record.steps else None
