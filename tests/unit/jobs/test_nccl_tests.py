"""nccl-tests' output of every version, as launchers leave it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdma_images.core.errors import RdmaImagesError
from rdma_images.facts.nccl_logs import Wording
from rdma_images.jobs.results import from_logs, logs, nccl_tests_json
from rdma_images.jobs.results.nccl_tests import SizesParser
from rdma_images.nccl_logs import parser, verdict
from tests.support import nccl_tests_text as text

RESULTS = Path(__file__).parents[2] / "data" / "results"
WORDINGS = verdict.load_wordings()


def read_sizes(path: Path, content: str) -> SizesParser:
    path.write_text(content)
    (table,) = logs.read_run_logs([path], WORDINGS, path.parent).tables
    return table


def sizes(table: SizesParser) -> list[tuple[int, float | None]]:
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
    assert {read.value for read in table.devices.values()} == {"one", "two"}
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
    assert len(table.devices) == 2


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


@pytest.mark.parametrize("name", ["2.19.6-socket", "2.18.3-socket"])
def test_the_json_of_a_real_run(name: str) -> None:
    table = nccl_tests_json.read_report(RESULTS / f"{name}.json", name)
    assert len(table.rows) == 28
    assert table.rows[-1].size == 1 << 30
    assert table.rows[-1].collective == "all_reduce"
    assert [read.value for read in table.devices.values()] == ["vm", "vm"]


def test_text_and_json_of_a_real_run_say_the_same() -> None:
    (table,) = logs.read_run_logs([RESULTS / "2.19.6-socket.txt"], WORDINGS).tables
    from_json = nccl_tests_json.read_report(RESULTS / "2.19.6-socket.json", "json")
    for row, other in zip(table.rows, from_json.rows, strict=True):
        assert row.out_of_place
        assert other.out_of_place
        assert other.out_of_place.busbw is not None
        assert row.out_of_place.busbw == pytest.approx(other.out_of_place.busbw, abs=0.006)
        assert (row.size, row.type, row.redop, row.root, row.collective) == (
            other.size,
            other.type,
            other.redop,
            other.root,
            other.collective,
        )


def test_the_misspelt_keys_before_2_17_9_change_nothing(tmp_path: Path) -> None:
    data = json.loads((RESULTS / "2.19.6-socket.json").read_text())
    data["average_bus_bandwidith"] = {"bandwidith": data.pop("average_bus_bandwidth")["bandwidth"]}
    data["version"] = 1
    (tmp_path / "out.json").write_text(json.dumps(data))
    assert len(nccl_tests_json.read_report(tmp_path / "out.json", "out.json").rows) == 28


def test_json_that_is_laid_out_names_the_line_of_each_row(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(json.dumps(json.loads((RESULTS / "2.19.6-socket.json").read_text()), indent=2))
    lines = path.read_text().split("\n")
    for row in nccl_tests_json.read_report(path, "out.json").rows:
        assert f'"size": {row.size},' in lines[int(row.where.rpartition(":")[2]) - 1]


def test_json_of_a_job_that_was_killed_has_the_rows_before_it(tmp_path: Path) -> None:
    content = (RESULTS / "2.19.6-socket.json").read_bytes()
    path = tmp_path / "out.json"
    path.write_bytes(content[: content.index(b'"size":16777216')])
    table = nccl_tests_json.read_report(path, "out.json")
    assert len(table.rows) == 21
    assert not table.concluded


def test_per_process_times_name_who_is_late(tmp_path: Path) -> None:
    """-I 1 -J of 2.19.2 and later: the slowest process of a collective, without another run."""
    data = json.loads((RESULTS / "2.19.6-socket.json").read_text())
    data["results"][-1]["out_of_place_per_iter"] = {"per_process_max_times_us": [[100.0, 101.0], [130.0, 131.0]]}
    (tmp_path / "out.json").write_text(json.dumps(data))
    (late,) = nccl_tests_json.read_report(tmp_path / "out.json", "out.json").late
    assert late.value == "1 13%"
    assert nccl_tests_json.read_report(RESULTS / "2.19.6-socket.json", "json").late == []


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
from_logs.read_logs([Path(sys.argv[1])])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


def test_the_line_of_every_row_is_named() -> None:
    path = RESULTS / "2.19.6-tcp-provider.txt"
    lines = path.read_text().split("\n")
    (table,) = logs.read_run_logs([path], WORDINGS, RESULTS).tables
    assert all(re.search(rf"^ *{row.size} ", lines[int(row.where.rpartition(":")[2]) - 1]) for row in table.rows)


def test_json_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_tests_json, "MAX_FILE_BYTES", 1000)
    with pytest.raises(RdmaImagesError, match="give the text"):
        nccl_tests_json.read_report(RESULTS / "2.19.6-socket.json", "json")


REAL = (RESULTS / "2.19.6-tcp-provider.txt").read_bytes()
JSON = (RESULTS / "2.19.6-socket.json").read_bytes()


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.sampled_from([REAL, JSON]),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.2)), max_size=4),
    noise=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=40)), max_size=4),
    swapped=st.booleans(),
)
def test_cut_torn_and_binary_logs_are_read_for_what_they_have(
    tmp_path: Path, content: bytes, cuts: list[tuple[float, float]], noise: list[tuple[float, bytes]], swapped: bool
) -> None:
    """Whatever happens to a log on its way: no traceback, and no row that was not measured."""
    real = {(row.size, row.type) for row in nccl_tests_json.read_report(RESULTS / "2.19.6-socket.json", "json").rows}
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
        result = logs.read_run_logs([path], WORDINGS)
    except RdmaImagesError:
        return
    rows = [(row.size, row.type) for table in result.tables for row in table.rows]
    # What is cut inside a number is a shorter number; all other rows are those that were measured.
    assert len(set(rows) - real) <= 2 * (len(cuts) + len(noise))


def test_each_message_of_a_long_line_is_looked_at_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expression takes the square of a text's length, and a launcher may write 28,000 messages in a line."""
    lengths: list[int] = []
    meaning_of_line = Wording.meaning

    def meaning(row: Wording, line: str) -> str | None:
        lengths.append(len(line))
        return meaning_of_line(row, line)

    monkeypatch.setattr(Wording, "meaning", meaning)
    log = tmp_path / "long.log"
    log.write_text("n:1:1 [0] NCCL INFO NET/OFI " * 28_000 + "\n")
    assert from_logs.read_logs([log]).exit_code == 3
    assert max(lengths, default=0) <= parser.MAX_MESSAGE_LENGTH
