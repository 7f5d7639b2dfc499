"""Parse what nccl-tests write with `-J`, from 2.17.3 on. Its environment holds secrets and is never stored."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pydantic_core

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError
from rdma_images.jobs.results.nccl_tests import MAX_ROWS, SizesParser, number
from rdma_images.jobs.results.result import Measurement, SourcedValue, Timing

MAX_FILE_BYTES = 64 << 20  # bytes; with -I, 512 processes and 34 sizes of 100 iterations it has 20 MB
LATE = 1.1  # times the median of all processes
START = b'{"version":'


def is_json_report(path: Path) -> bool:
    """Return whether the regular file at `path` begins as such a report does."""
    if not path.is_file():
        return False
    with files.as_file_error(path), path.open("rb") as file:
        return file.read(len(START) + 64).replace(b" ", b"").replace(b"\n", b"").startswith(START)


def read_report(path: Path, name: str) -> SizesParser:
    """Return the rows and devices of the file at `path`, whose lines name it `name`.

    A file that was cut (the job was killed) gives the part that it has. Raises RdmaImagesError for a too large one.
    """
    with files.as_file_error(path), path.open("rb") as file:
        text = file.read(MAX_FILE_BYTES + 1)
    if len(text) > MAX_FILE_BYTES:
        raise RdmaImagesError(
            f"{path}: has more than {MAX_FILE_BYTES >> 20} MiB\ngive the text that the job printed instead"
        )
    try:
        document = pydantic_core.from_json(text, allow_partial="trailing-strings")
    except ValueError as error:
        raise RdmaImagesError(f"{path}: not JSON as nccl-tests write it: {error}\ngive another file") from None
    return _table(document if isinstance(document, dict) else {}, text, name)


def _table(document: dict[str, object], text: bytes, name: str) -> SizesParser:
    """Return the table of the decoded JSON. Only the keys that are named here are read."""
    table = SizesParser()
    config = _mapping(document.get("config"))
    args = document.get("args")
    program = str(args[0]) if isinstance(args, list) and args else ""
    collective = program.rpartition("/")[2].removesuffix("_perf")
    lines = _row_lines(text, name)
    for entry in _list(document.get("results"))[:MAX_ROWS]:
        where = next(lines, f"{name}:1")
        if row := _row(_mapping(entry), collective, where):
            table.rows.append(row)
    table.late = _late_processes(document.get("results"), name)
    for device in _list(config.get("devices"))[:MAX_ROWS]:
        fields = _mapping(device)
        rank, host = fields.get("rank"), fields.get("hostname")
        if isinstance(rank, int) and isinstance(host, str) and host:
            table.record_device(rank, host, str(fields.get("device_hex", "")), f"{name}:1")
    if isinstance(maximum := config.get("maximum_bytes"), int):
        table.largest = SourcedValue(str(maximum), f"{name}:1")
    bounds = document.get("out_of_bounds")
    if isinstance(bounds, dict) and isinstance(count := bounds.get("count"), int):
        table.out_of_bounds, table.concluded = SourcedValue(str(count), f"{name}:1"), True
    return table


def _late_processes(results: object, name: str) -> list[SourcedValue]:
    """Return the processes that took longest in the row of the largest size.

    "3 12%" is the process 3, and 12 % more than the median.
    """
    rows = [_mapping(entry) for entry in _list(results)]
    sized = [row for row in rows if isinstance(row.get("size"), int)]
    largest = max(sized, key=lambda row: int(str(row["size"])), default={})
    times = _list(_mapping(largest.get("out_of_place_per_iter")).get("per_process_max_times_us"))
    times_by_process = [[value for value in _list(entry) if isinstance(value, float | int)] for entry in times]
    mean_times = [sum(values) / len(values) for values in times_by_process if values]
    if len(mean_times) < 2 or len(mean_times) != len(times):
        return []
    median_time = median(mean_times)
    late = [
        (mean / median_time - 1, n) for n, mean in enumerate(mean_times) if median_time and mean > LATE * median_time
    ]
    return [SourcedValue(f"{n} {share:.0%}", f"{name}:1") for share, n in sorted(late, reverse=True)]


def _row(fields: dict[str, object], collective: str, where: str) -> Measurement | None:
    """Return a row; None for what is no row."""
    size = fields.get("size")
    try:
        halves = [_timing(_mapping(fields[key])) if fields.get(key) else None for key in ("out_of_place", "in_place")]
    except ValueError:
        return None
    if not isinstance(size, int) or not any(halves):
        return None
    return Measurement(
        collective=collective,
        size=size,
        type=str(fields.get("type", "")),
        redop=str(fields.get("redop", "")),
        root=str(fields.get("root", "")).strip(),
        out_of_place=halves[0],
        in_place=halves[1],
        where=where,
    )


def _timing(fields: dict[str, object]) -> Timing:
    wrong = number(fields.get("nwrong"))
    return Timing(
        time=number(fields.get("time", fields.get("cpu_time"))),
        algbw=number(fields.get("alg_bw")),
        busbw=number(fields.get("bus_bw")),
        wrong=None if wrong is None else int(wrong),
    )


def _row_lines(text: bytes, name: str) -> Iterator[str]:
    """Yield where the rows begin, "file:line", by their key `size`."""
    position, line, previous = text.find(b'"results"'), 1, 0
    while position >= 0 and (position := text.find(b'"size"', position)) >= 0:
        line += text.count(b"\n", previous, position)
        previous = position
        yield f"{name}:{line}"
        position += 1


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
