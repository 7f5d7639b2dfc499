"""Split the matrix over machines that share only a registry cache: images with the same wheels stay together."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rdma_images.ci.jobs import wheel_group
from rdma_images.core.errors import RefusedError
from rdma_images.core.pipeline import Build, Image

PART = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")
MOST = 2_000  # parts: no target has more rows
FIRST, NEXT = 600.0, 60.0  # seconds assumed for an unmeasured image: the first with its wheels, and each other one


@dataclass
class Shard:
    """The images of one machine and the seconds they are expected to take."""

    images: list[Image] = field(default_factory=list)
    seconds: float = 0.0


def parse_shard(text: str) -> tuple[int, int]:
    """Parse "2/5" as (2, 5). Raises RefusedError for anything that is not i/n with 1 <= i <= n <= MOST."""
    match = PART.fullmatch(text)
    number, total = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= total <= MOST:
        short = text if len(text) <= 40 else f"{text[:40]}…"
        raise RefusedError(
            f"--shard {short}: not a part of a whole\n"
            f"write i/n with i from 1 to n, and n at most {MOST}, as in --shard 1/4"
        )
    return number, total


def split_images(
    images: Sequence[Image], count: int, built: Callable[[str], Build | None]
) -> tuple[tuple[Image, ...], ...]:
    """Return `images` in `count` disjoint parts, every image in exactly one; the same input gives the same parts.

    Images with the same wheels are a group and stay in one part. Where there are fewer groups than parts, the largest
    groups are halved; each half builds the shared layers again. The heaviest group goes first, to the lightest part.
    """
    groups = _split_groups(_groups(images), count)
    shards = [Shard() for _ in range(count)]
    weighed = sorted(((_seconds(group, built), group) for group in groups), key=lambda part: (-part[0], part[1][0].id))
    for seconds, group in weighed:
        lightest = min(shards, key=lambda part: part.seconds)
        lightest.images += group
        lightest.seconds += seconds
    return tuple(tuple(part.images) for part in shards)


def _groups(images: Sequence[Image]) -> list[list[Image]]:
    groups: dict[tuple[str, ...], list[Image]] = {}
    for image in sorted(images, key=lambda image: image.id):
        groups.setdefault(wheel_group(image), []).append(image)
    return list(groups.values())


def _split_groups(groups: list[list[Image]], count: int) -> list[list[Image]]:
    """Return at least `count` groups where there are as many images, by halving the largest."""
    groups = list(groups)
    while groups and len(groups) < count:
        largest = max(groups, key=len)
        if len(largest) == 1:
            return groups
        groups.remove(largest)
        middle = len(largest) // 2
        groups += [largest[:middle], largest[middle:]]
    return groups


def _seconds(group: Sequence[Image], built: Callable[[str], Build | None]) -> float:
    """Return the seconds that a group is expected to take: measured where it was built, else assumed."""
    measured: Mapping[str, float] = {image.id: build.seconds for image in group if (build := built(image.id))}
    assumed = (FIRST if number == 0 else NEXT for number in range(len(group)))
    return sum(measured.get(image.id, guess) for image, guess in zip(group, assumed, strict=True))
