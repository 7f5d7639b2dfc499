"""Split the matrix over machines that share only a registry cache: images with the same wheels stay together."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rdma_images.ci.jobs import kin
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


def parse(text: str) -> tuple[int, int]:
    """ "2/5" as (2, 5). Raises RefusedError for anything that is not i/n with 1 <= i <= n <= MOST."""
    found = PART.fullmatch(text)
    number, of = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= of <= MOST:
        short = text if len(text) <= 40 else f"{text[:40]}…"
        raise RefusedError(
            f"--shard {short}: not a part of a whole\n"
            f"write i/n with i from 1 to n, and n at most {MOST}, as in --shard 1/4"
        )
    return number, of


def shard(images: Sequence[Image], of: int, built: Callable[[str], Build | None]) -> tuple[tuple[Image, ...], ...]:
    """`images` in `of` disjoint parts, every image in exactly one; the same input gives the same parts everywhere.

    Images with the same wheels are a group and stay in one part. Where there are fewer groups than parts, the largest
    groups are halved; each half builds the shared layers again. The heaviest group goes first, to the lightest part.
    """
    groups = _enough(_groups(images), of)
    shards = [Shard() for _ in range(of)]
    weighed = sorted(((_seconds(group, built), group) for group in groups), key=lambda one: (-one[0], one[1][0].id))
    for seconds, group in weighed:
        lightest = min(shards, key=lambda one: one.seconds)
        lightest.images += group
        lightest.seconds += seconds
    return tuple(tuple(one.images) for one in shards)


def _groups(images: Sequence[Image]) -> list[list[Image]]:
    groups: dict[tuple[str, ...], list[Image]] = {}
    for image in sorted(images, key=lambda one: one.id):
        groups.setdefault(kin(image), []).append(image)
    return list(groups.values())


def _enough(groups: list[list[Image]], of: int) -> list[list[Image]]:
    """At least `of` groups where there are as many images, by halving the largest."""
    groups = list(groups)
    while groups and len(groups) < of:
        largest = max(groups, key=len)
        if len(largest) == 1:
            return groups
        groups.remove(largest)
        middle = len(largest) // 2
        groups += [largest[:middle], largest[middle:]]
    return groups


def _seconds(group: Sequence[Image], built: Callable[[str], Build | None]) -> float:
    """The seconds that a group is expected to take: measured where it was built, else assumed."""
    measured: Mapping[str, float] = {image.id: found.seconds for image in group if (found := built(image.id))}
    assumed = (FIRST if number == 0 else NEXT for number in range(len(group)))
    return sum(measured.get(image.id, guess) for image, guess in zip(group, assumed, strict=True))
