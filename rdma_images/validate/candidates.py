"""Choose what to validate: the images, and the tiers of checks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from rdma_images.core.check import Tier
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import BuildRecord, Image
from rdma_images.core.paths import COMMAND
from rdma_images.core.step_files import BUILD_FILE

TIERS: tuple[str, ...] = get_args(Tier)


@dataclass(frozen=True)
class ValidationCandidate:
    """An image in the engine; planned and built here, or by anybody."""

    ref: str  # "" for the host
    image: Image | None = None
    build: BuildRecord | None = None


def chosen_candidates(
    planned: Sequence[Image] | None, images: Sequence[str], host: str
) -> tuple[ValidationCandidate, ...]:
    """Return the candidates of the options: planned images, else those of --image, else the image that a host runs.

    Raises:
        RefusedError: A planned image was not built here, or several are chosen for one host.
    """
    if planned is None:
        candidates = tuple(map(ValidationCandidate, dict.fromkeys(images or [""])))
    else:
        candidates = _built_candidates(planned)
    if host and len(candidates) > 1:
        raise RefusedError(f"--host {host} measures one machine, and {len(candidates)} images are chosen\nchoose one")
    return candidates


def _built_candidates(images: Sequence[Image]) -> tuple[ValidationCandidate, ...]:
    """Return the candidates of planned images. Raises RefusedError for one that was not built here."""
    candidates = []
    for image in images:
        build = BUILD_FILE.read_if_valid(image.id)
        if build is None:
            raise RefusedError(f"{image.id} was not built here\nrun `{COMMAND} build {image.options}` first")
        candidates.append(ValidationCandidate(build.ref, image, build))
    return tuple(candidates)


def parse_tiers(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the tiers of --tier, "static" by default.

    Raises RefusedError for one that does not exist.
    """
    for tier in names or ():
        if tier not in TIERS:
            raise RefusedError(f"--tier {tier}: no such tier\n{suggestion(tier, TIERS)}")
    return tuple(names or ("static",))
