"""Read the nodes to pair, and the bus bandwidths of pairs that were measured, from files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError, suggestion
from rdma_images.jobs.pairs.pair_rounds import Pair
from rdma_images.jobs.results import collected, expected_bandwidth

SEPARATOR = "--"  # the nodes of a pair, in the name of its folder or file
ENDINGS = (".json", ".log", ".txt", ".out")
MAX_NODES = 10_000


def read_nodes(path: Path) -> tuple[str, ...]:
    """Return the nodes of a file: the first word of each line, as in hostfiles of MPI. Raises RefusedError."""
    words = [line.split("#")[0].split() for line in files.read_text(path).splitlines()]
    node_names = [line[0] for line in words if line]
    repeated = next((node for n, node in enumerate(node_names) if node in node_names[:n]), None)
    invalid = next((node for node in node_names if not re.fullmatch(r"[\w.:-]{1,253}", node)), None)
    if invalid or repeated:
        problem = f"{invalid!r} is no name of a node" if invalid else f"{repeated} is in it twice"
        raise RefusedError(f"{path}: {problem}\nwrite one node a line")
    if not 2 <= len(node_names) <= MAX_NODES:
        raise RefusedError(f"{path}: {len(node_names)} nodes\npairs need 2 to {MAX_NODES} of them, one a line")
    return tuple(node_names)


def read_pairs(path: Path, nodes: Sequence[str]) -> dict[Pair, float]:
    """Return the bus bandwidth of each pair in GB/s, of the largest size; 0 where the job of a pair measured nothing.

    Args:
        path: A folder that has a run, logs or a result.json for each pair, named "one--two", or a file of lines
            "one two 123.4". Of a pair that was measured twice the later name counts.

    Raises:
        RdmaImagesError: A file cannot be read.
        RefusedError: A node is not among `nodes`.
    """
    order = {node: n for n, node in enumerate(nodes)}
    by_pair: dict[Pair, float] = {}
    for first, second, busbw in _folder(path) if path.is_dir() else _lines(path):
        for node in (first, second):
            if node not in order:
                raise RefusedError(f"{path}: {node} is not among the nodes\n{suggestion(node, nodes)}")
        if first == second:
            raise RefusedError(f"{path}: {first} is paired with itself\ntwo nodes make a pair")
        by_pair[(first, second) if order[first] < order[second] else (second, first)] = busbw
    return by_pair


def _lines(path: Path) -> Iterator[tuple[str, str, float]]:
    for n, line in enumerate(files.read_text(path).splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        try:
            first, second, busbw = words[0], words[1], float(words[2])
        except (IndexError, ValueError):
            raise RefusedError(f'{path}:{n}: not "one two GB/s"\nwrite two nodes and a number') from None
        yield first, second, busbw if 0 <= busbw < 1e6 else 0.0


def _folder(path: Path) -> Iterator[tuple[str, str, float]]:
    for entry in files.list_folder(path):
        name = next((entry.name.removesuffix(end) for end in ENDINGS if entry.name.endswith(end)), entry.name)
        first, separator, second = name.partition(SEPARATOR)
        if separator and first and second:
            yield first, second, _busbw(entry)


def _busbw(path: Path) -> float:
    """Return what the job of a pair measured."""
    try:
        result = collected.read_result(path)
    except RdmaImagesError:
        if path.is_file():
            raise
        return 0.0  # a folder without logs: the job never ran
    return expected_bandwidth.best_busbw(result.runs[0].largest) or 0.0


def parse_rate(text: str) -> float:
    """Return the GB/s in `text`; 0 for an empty text. Raises RefusedError for what is no rate."""
    if not text:
        return 0.0
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text) or not float(text):
        raise RefusedError(f"--expected {text}: not a rate\nwrite GB/s as a number, such as 400")
    return float(text)


def partners_by_node(measured: Mapping[Pair, float]) -> dict[str, list[tuple[str, float]]]:
    """Return the partners of each node, with the bandwidth of each pair."""
    partners: dict[str, list[tuple[str, float]]] = {}
    for (first, second), busbw in measured.items():
        partners.setdefault(first, []).append((second, busbw))
        partners.setdefault(second, []).append((first, busbw))
    return partners
