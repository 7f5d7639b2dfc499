"""The nodes to pair, and the bus bandwidths of pairs that were measured, from files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError, near
from rdma_images.jobs.pairs.pair_rounds import Pair
from rdma_images.jobs.results import collected, expected

BETWEEN = "--"  # the nodes of a pair, in the name of its folder or file
ENDINGS = (".json", ".log", ".txt", ".out")
MOST = 10_000


def nodes(path: Path) -> tuple[str, ...]:
    """The nodes of a file: the first word of each line, as hostfiles of MPI have them. Raises RefusedError."""
    words = [line.split("#")[0].split() for line in files.read(path).splitlines()]
    found = [line[0] for line in words if line]
    double = next((node for n, node in enumerate(found) if node in found[:n]), None)
    strange = next((node for node in found if not re.fullmatch(r"[\w.:-]{1,253}", node)), None)
    if strange or double:
        what = f"{strange!r} is no name of a node" if strange else f"{double} is in it twice"
        raise RefusedError(f"{path}: {what}\nwrite one node a line")
    if not 2 <= len(found) <= MOST:
        raise RefusedError(f"{path}: {len(found)} nodes\npairs need 2 to {MOST} of them, one a line")
    return tuple(found)


def read(path: Path, known: Sequence[str]) -> dict[Pair, float]:
    """The bus bandwidth of each pair in GB/s, of the largest size; 0 where the job of a pair measured nothing.

    `path` is a folder that has a run, logs or a result.json for each pair, named "one--two", or a file of lines
    "one two 123.4". A pair that was measured twice counts by the later name. Raises RdmaImagesError for what cannot be
    read, RefusedError for nodes that are not known.
    """
    order = {node: n for n, node in enumerate(known)}
    found: dict[Pair, float] = {}
    for one, other, busbw in _folder(path) if path.is_dir() else _lines(path):
        for node in (one, other):
            if node not in order:
                raise RefusedError(f"{path}: {node} is not among the nodes\n{near(node, known)}")
        if one == other:
            raise RefusedError(f"{path}: {one} is paired with itself\ntwo nodes make a pair")
        found[(one, other) if order[one] < order[other] else (other, one)] = busbw
    return found


def _lines(path: Path) -> Iterator[tuple[str, str, float]]:
    for n, line in enumerate(files.read(path).splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        try:
            one, other, busbw = words[0], words[1], float(words[2])
        except (IndexError, ValueError):
            raise RefusedError(f'{path}:{n}: not "one two GB/s"\nwrite two nodes and a number') from None
        yield one, other, busbw if 0 <= busbw < 1e6 else 0.0


def _folder(path: Path) -> Iterator[tuple[str, str, float]]:
    for entry in files.entries(path):
        name = next((entry.name.removesuffix(end) for end in ENDINGS if entry.name.endswith(end)), entry.name)
        one, between, other = name.partition(BETWEEN)
        if between and one and other:
            yield one, other, _busbw(entry)


def _busbw(path: Path) -> float:
    """What the job of a pair measured."""
    try:
        found = collected.result(path)
    except RdmaImagesError:
        if path.is_file():
            raise
        return 0.0  # a folder without logs: the job never ran
    return expected.best(found.legs[0].largest) or 0.0


def rate(text: str) -> float:
    """GB/s as typed; 0 for an empty text. Raises RefusedError for what is no rate."""
    if not text:
        return 0.0
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text) or not float(text):
        raise RefusedError(f"--expected {text}: not a rate\nwrite GB/s as a number, such as 400")
    return float(text)


def by_node(measured: Mapping[Pair, float]) -> dict[str, list[tuple[str, float]]]:
    """The partners of each node, with what the pair had."""
    found: dict[str, list[tuple[str, float]]] = {}
    for (one, other), busbw in measured.items():
        found.setdefault(one, []).append((other, busbw))
        found.setdefault(other, []).append((one, busbw))
    return found
