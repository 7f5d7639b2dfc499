"""What nccl-tests write with `-J`, from 2.17.3 on. The environment in it is never kept: it holds secrets."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pydantic_core

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError
from rdma_images.jobs.results.nccl_tests import MOST, Table, number
from rdma_images.jobs.results.result import Half, Measurement, Read

LARGEST = 64 << 20  # bytes; with -I, 512 processes and 34 sizes of 100 iterations it has 20 MB
LATE = 1.1  # times the median of all processes
START = b'{"version":'


def is_one(path: Path) -> bool:
    """Whether the regular file at `path` begins as such a file does."""
    if not path.is_file():
        return False
    with files.as_file_error(path), path.open("rb") as file:
        return file.read(len(START) + 64).replace(b" ", b"").replace(b"\n", b"").startswith(START)


def read(path: Path, name: str) -> Table:
    """The rows and devices of the file at `path`; `name` is what they say it is called.

    A file that was cut (the job was killed) has what it has. Raises RdmaImagesError for one that is too large.
    """
    with files.as_file_error(path), path.open("rb") as file:
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise RdmaImagesError(f"{path}: has more than {LARGEST >> 20} MiB\ngive the text that the job printed instead")
    try:
        found = pydantic_core.from_json(text, allow_partial="trailing-strings")
    except ValueError as error:
        raise RdmaImagesError(f"{path}: not JSON as nccl-tests write it: {error}\ngive another file") from None
    return _table(found if isinstance(found, dict) else {}, text, name)


def _table(found: dict[str, object], text: bytes, name: str) -> Table:
    """What the decoded JSON says. Only the keys that are named here are looked at."""
    table = Table()
    config = _mapping(found.get("config"))
    args = found.get("args")
    program = str(args[0]) if isinstance(args, list) and args else ""
    collective = program.rpartition("/")[2].removesuffix("_perf")
    places = _places(text, name)
    for one in _list(found.get("results"))[:MOST]:
        where = next(places, f"{name}:1")
        if row := _row(_mapping(one), collective, where):
            table.rows.append(row)
    table.late = _late(found.get("results"), name)
    for device in _list(config.get("devices"))[:MOST]:
        about = _mapping(device)
        rank, host = about.get("rank"), about.get("hostname")
        if isinstance(rank, int) and isinstance(host, str) and host:
            table.device(rank, host, str(about.get("device_hex", "")), f"{name}:1")
    if isinstance(most := config.get("maximum_bytes"), int):
        table.largest = Read(str(most), f"{name}:1")
    bounds = found.get("out_of_bounds")
    if isinstance(bounds, dict) and isinstance(count := bounds.get("count"), int):
        table.out_of_bounds, table.concluded = Read(str(count), f"{name}:1"), True
    return table


def _late(results: object, name: str) -> list[Read]:
    """Processes that took longer than the others in the row of the largest size, where -I 1 wrote the times of each.

    "3 12%" is the process 3, and 12 % more than the median.
    """
    rows = [_mapping(one) for one in _list(results)]
    sized = [row for row in rows if isinstance(row.get("size"), int)]
    last = max(sized, key=lambda row: int(str(row["size"])), default={})
    times = _list(_mapping(last.get("out_of_place_per_iter")).get("per_process_max_times_us"))
    each = [[value for value in _list(one) if isinstance(value, float | int)] for one in times]
    means = [sum(values) / len(values) for values in each if values]
    if len(means) < 2 or len(means) != len(times):
        return []
    usual = median(means)
    late = [(mean / usual - 1, n) for n, mean in enumerate(means) if usual and mean > LATE * usual]
    return [Read(f"{n} {share:.0%}", f"{name}:1") for share, n in sorted(late, reverse=True)]


def _row(about: dict[str, object], collective: str, where: str) -> Measurement | None:
    """A row; None for what is none."""
    size = about.get("size")
    try:
        halves = [_half(_mapping(about[key])) if about.get(key) else None for key in ("out_of_place", "in_place")]
    except ValueError:
        return None
    if not isinstance(size, int) or not any(halves):
        return None
    return Measurement(
        collective=collective,
        size=size,
        type=str(about.get("type", "")),
        redop=str(about.get("redop", "")),
        root=str(about.get("root", "")).strip(),
        out_of_place=halves[0],
        in_place=halves[1],
        where=where,
    )


def _half(about: dict[str, object]) -> Half:
    wrong = number(about.get("nwrong"))
    return Half(
        time=number(about.get("time", about.get("cpu_time"))),
        algbw=number(about.get("alg_bw")),
        busbw=number(about.get("bus_bw")),
        wrong=None if wrong is None else int(wrong),
    )


def _places(text: bytes, name: str) -> Iterator[str]:
    """Where the rows begin, "file:line": each has one key `size`. The file is one line unless somebody laid it out."""
    at, line, before = text.find(b'"results"'), 1, 0
    while at >= 0 and (at := text.find(b'"size"', at)) >= 0:
        line += text.count(b"\n", before, at)
        before = at
        yield f"{name}:{line}"
        at += 1


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
