"""Splitting the matrix over machines that share nothing but a registry cache: kin stay together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rdma_images.ci.jobs import kin
from rdma_images.errors import RefusedError
from rdma_images.model import Build, Image

FIRST, NEXT = 600.0, 60.0  # seconds assumed of an unmeasured image: the first of its kin, and every other


@dataclass
class Shard:
    """The images of one machine and the seconds they are expected to take."""

    images: list[Image] = field(default_factory=list)
    seconds: float = 0.0


def parse(text: str) -> tuple[int, int]:
    """ "2/5" as (2, 5). Raises RefusedError for anything that is not i/n with 1 <= i <= n."""
    number, slash, of = text.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise RefusedError(f"--shard {text}: write i/n with i from 1 to n, as in --shard 1/4")
    return int(number), int(of)


def shard(images: Sequence[Image], of: int, built: Callable[[str], Build | None]) -> tuple[tuple[Image, ...], ...]:
    """`images` in `of` disjoint parts, every image in exactly one; the same input gives the same parts everywhere.

    Kin (the same wheels) stay in one part, unless there are fewer kinds than parts: then the largest are halved until
    there are enough, each half paying for the shared layers once more. The heaviest goes first, to the lightest part.
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
    """What a group is expected to take: measured where it was built, else assumed."""
    measured: Mapping[str, float] = {image.id: found.seconds for image in group if (found := built(image.id))}
    assumed = (FIRST if number == 0 else NEXT for number in range(len(group)))
    return sum(measured.get(image.id, guess) for image, guess in zip(group, assumed, strict=True))
