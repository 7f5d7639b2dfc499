"""Facts about bus bandwidths that others published."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from rdma_images.facts.origin import FactsFile, Row

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_size(text: str) -> int:
    """Return the bytes of "16GiB". Raises ValueError for text of another form."""
    match = re.fullmatch(r"(\d{1,6})(B|KiB|MiB|GiB)", text)
    if not match:
        raise ValueError(f"{text!r} is no size: write it as 512B, 64KiB, 128MiB or 16GiB")
    return int(match[1]) * UNITS[match[2]]


def _check_size(text: str) -> str:
    parse_size(text)
    return text


Size = Annotated[str, AfterValidator(_check_size)]


class PublishedRun(Row):
    """One run that somebody published."""

    instance: str
    nodes: int
    ranks: int
    collective: str  # "all_reduce"
    gpudirect: Literal["yes", "no"] | None = None  # where it is said
    busbw: dict[Size, float]  # GB/s, by the size of the message


class ReferenceBusbw(FactsFile):
    """facts/reference-busbw.yaml."""

    FILE = "reference-busbw.yaml"

    runs: dict[str, PublishedRun]
