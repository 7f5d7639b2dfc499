"""nccl-tests' output of every version, as launchers leave it."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdma_images.core.errors import RdmaImagesError
from rdma_images.jobs.results import run_results
from rdma_images.jobs.results.nccl_tests import NcclTestsParser
from tests.support import nccl_tests_text as text

RESULTS = Path(__file__).parents[2] / "data" / "results"


def read_sizes(path: Path, content: str) -> NcclTestsParser:
    path.write_text(content)
    (table,) = run_results.read_run_logs([path], path.parent).tables
    return table


def sizes(table: NcclTestsParser) -> list[tuple[int, float | None]]:
    return [(row.size, row.in_place.busbw if row.in_place else None) for row in table.rows]


EXPECTED = [(row[0], row[3]) for row in text.ROWS]
VERSIONS: dict[str, Callable[[], str]] = {
    "2.10": text.upto_2_11,
    "2.10, sendrecv": lambda: text.upto_2_11(redop=False),
    "2.13": text.from_2_13,
    "2.13, -C 1": lambda: text.from_2_13(cputime=True),
    "2.17.6, -S": lambda: text.from_2_13(timestamps=True),
    "2.19.2, -I 1": lambda: text.from_2_13(per_iteration=True),
    "2.19.6, -I 1 -S": lambda: text.from_2_13(timestamps=True, per_iteration=True),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_rows_of_every_version_are_read_by_its_header(tmp_path: Path, version: str) -> None:
    table = read_sizes(tmp_path / "log", VERSIONS[version]())
    assert sizes(table) == EXPECTED
    assert [row.out_of_place is not None for row in table.rows] == [True] * 3
    assert table.concluded


def test_until_2_11_an_error_is_no_count_of_wrong_elements(tmp_path: Path) -> None:
    assert {
        timing.wrong for row in read_sizes(tmp_path / "log", text.upto_2_11()).rows if (timing := row.out_of_place)
    } == {None}


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:",
        "        [1,0]<stdout>:",
        "0: ",
        "nccl-tests-launcher-nbql9 ",
        "[pod/nccl-launcher-abc/mpi] ",
        "2026-11-22T06:00:00.123456789Z ",
        "(head, rank=0, pid=21170) ",
        "[nccl-tests-worker-0] ",
        "\x1b[36m(worker1)\x1b[0m ",
    ],
)
def test_whatever_a_launcher_puts_before_the_lines(tmp_path: Path, prefix: str) -> None:
    table = read_sizes(tmp_path / "log", "\n".join(prefix + line for line in text.from_2_13().split("\n")))
    assert sizes(table) == EXPECTED


def test_a_size_as_wide_as_its_column_is_read_behind_a_prefix(tmp_path: Path) -> None:
    rows = [(137438953472, 1234567.0, 276.03, 483.05, 0)]
    log_text = "\n".join("[1,0]<stdout>:" + line for line in text.from_2_13(rows).split("\n"))
    assert "[1,0]<stdout>:137438953472" in log_text
    assert sizes(read_sizes(tmp_path / "log", log_text)) == [(137438953472, 483.05)]


def test_a_time_that_is_too_wide_is_read_with_its_exponent(tmp_path: Path) -> None:
    table = read_sizes(tmp_path / "log", text.from_2_13([(1 << 34, 123456789.0, 1234567.0, 2345678.0, 0)]))
    (row,) = table.rows
    assert row.out_of_place
    assert (row.out_of_place.time, row.out_of_place.busbw) == (1.2e8, 2e6)


def test_a_row_that_the_lines_tear_is_joined(tmp_path: Path) -> None:
    log_text = text.from_2_13()
    whole = next(line for line in log_text.split("\n") if line.lstrip().startswith("1048576"))
    begun, remainder = whole[:52], whole[52:]
    channel = "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0"
    torn = f"{begun}{channel}\nvm:1:1 [0] NCCL INFO more\n{remainder}"
    assert sizes(read_sizes(tmp_path / "log", log_text.replace(whole, torn))) == EXPECTED


def test_a_table_as_people_paste_it(tmp_path: Path) -> None:
    """github.com/NVIDIA/nccl/issues/527: without "#", and with a column of the number of nodes before it."""
    pasted = """                                                       out-of-place                       in-place
 p4dn        size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
              (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   1   1073741824     268435456     float     sum   8142.6  131.87  230.77  2e-07   8141.2  131.89  230.81  2e-07
   2   1073741824     268435456     float     sum    35215   30.49   57.17  4e-07    35198   30.51   57.20  4e-07
"""
    assert sizes(read_sizes(tmp_path / "log", pasted)) == [(1 << 30, 230.81), (1 << 30, 57.2)]


@pytest.mark.exhaustive
def test_a_log_of_200_megabytes_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    with path.open("wb") as file:
        while file.tell() < 200_000_000:
            file.write(REAL * 100)
    completed = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
    assert int(completed.stdout) < 200_000


# From /proc: a process's ru_maxrss begins with that of the one that started it.
PEAK = """
import sys
from pathlib import Path
from rdma_images.jobs.results import from_logs
from_logs.read_job_result([Path(sys.argv[1])])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


def test_the_line_of_every_row_is_named() -> None:
    path = RESULTS / "2.19.6-tcp-provider.txt"
    lines = path.read_text().split("\n")
    (table,) = run_results.read_run_logs([path], RESULTS).tables
    assert all(re.search(rf"^ *{row.size} ", lines[int(row.where.rpartition(":")[2]) - 1]) for row in table.rows)


REAL = (RESULTS / "2.19.6-tcp-provider.txt").read_bytes()


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.just(REAL),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.2)), max_size=4),
    noise=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=40)), max_size=4),
    swapped=st.booleans(),
)
def test_cut_torn_and_binary_logs_are_read_for_what_they_have(
    tmp_path: Path, content: bytes, cuts: list[tuple[float, float]], noise: list[tuple[float, bytes]], swapped: bool
) -> None:
    """Whatever happens to a log on its way: no traceback, and no row that was not measured."""
    real = {
        (row.size, row.type) for row in run_results.read_run_logs([RESULTS / "2.19.6-tcp-provider.txt"]).tables[0].rows
    }
    for position, share in cuts:
        start = int(position * len(content))
        content = content[:start] + content[start + int(share * len(content)) :]
    for position, more in noise:
        start = int(position * len(content))
        content = content[:start] + more + content[start:]
    if swapped:
        content = b"\n".join(content.split(b"\n")[::2] + content.split(b"\n")[1::2])
    path = tmp_path / "log"
    path.write_bytes(content)
    try:
        result = run_results.read_run_logs([path])
    except RdmaImagesError:
        return
    rows = [(row.size, row.type) for table in result.tables for row in table.rows]
    # What is cut inside a number is a shorter number; all other rows are those that were measured.
    assert len(set(rows) - real) <= 2 * (len(cuts) + len(noise))
