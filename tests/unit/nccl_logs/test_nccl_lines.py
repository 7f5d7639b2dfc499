"""Which lines of a log are looked into: what they say is found, however many are like them but for their numbers."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.facts import facts_file
from rdma_images.facts.nccl_logs import NcclLogFacts, load_log_patterns
from rdma_images.jobs.results import from_logs
from rdma_images.jobs.results.run_results import judge_log
from rdma_images.nccl_logs import lines as nccl_lines
from rdma_images.nccl_logs.lines import IRRELEVANT_NCCL, NOT_NCCL, RELEVANT_NCCL, LineClasses
from rdma_images.nccl_logs.log_patterns import LogPatterns
from rdma_images.nccl_logs.verdict import judge_lines

PATTERNS = load_log_patterns()
ROWS = {**PATTERNS.causes, **PATTERNS.notes}
RANK = "vm:1:1 [0] NCCL INFO "
CHANNEL = f"{RANK}Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA"


@pytest.mark.parametrize("name", ROWS)
def test_every_wording_begins_with_plain_text(name: str) -> None:
    """Without it every line of a log would be looked into for this wording."""
    (shape,) = LineClasses([ROWS[name]], ()).of_lines("NCCL WARN a line of something else")
    assert shape is IRRELEVANT_NCCL


def wording(expression: str, anywhere: bool = False) -> LogPatterns:
    row = {"pattern": expression, "why": "said", "in_any_line": anywhere, "is_fatal": True}
    return LogPatterns({"networks": {}, "causes": {"one": row}, "notes": {}})


@pytest.mark.parametrize(
    ("expression", "line", "matches"),
    [
        ("one two", "one two", True),
        ("one 2a?", "one 2", True),
        ("one|two", "two", True),
        (r"one \(|two", "two", True),
        (r"one (two|three)", "one four", True),
        (r"one (two|three)", "three", False),
        ("[Oo]ne", "anything", True),
    ],
)
def test_a_line_that_may_have_a_wording_is_never_missed(expression: str, line: str, matches: bool) -> None:
    rows = wording(expression, anywhere=True).causes.values()
    (shape,) = LineClasses(rows, ()).of_lines(line)
    assert (shape.patterns == tuple(rows)) is matches


def test_a_wording_of_nccl_is_looked_for_in_its_lines_alone() -> None:
    assert judge_lines(["one"], wording("one")).causes == ()
    assert judge_lines(["n:1:1 [0] NCCL WARN one"], wording("one")).causes == ("said",)


def test_lines_are_sorted_by_what_they_can_mean() -> None:
    lines = [
        "step 12 loss 0.3",
        f"{RANK}opCount 1f sendbuff 0x7fab",
        CHANNEL,
        f"{RANK}Channel 00/16 : 0 1 2 3",
        f"{RANK}NET/IB : No device found.",
        '{"log": "x"}',
        "\x07bell",
    ]
    shapes = LineClasses(ROWS.values(), ()).of_lines("\n".join(lines))
    assert shapes[:4] == [NOT_NCCL, IRRELEVANT_NCCL, RELEVANT_NCCL, IRRELEVANT_NCCL]
    assert ROWS["no-verbs"] in shapes[4].patterns
    assert all(shape.is_relevant and shape.is_raw for shape in shapes[5:])


def test_of_lines_alike_the_one_that_means_something_is_read() -> None:
    """Lines that differ in a number alone have one shape, and not one meaning."""
    alike = [f"n:1:1 [0] NCCL WARN NET/IB : Got completion with error {n}, opcode 0" for n in (0, 0, 12)]
    assert judge_lines(alike, PATTERNS).causes == (ROWS["transfer-unanswered"].why,)


def test_more_shapes_than_are_remembered_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_lines, "MAX_CLASSES", 2)
    shapes = LineClasses(ROWS.values(), ())
    lines = ["u v", CHANNEL, f"{RANK}x", "y" * 5000, "z"]
    kinds = [NOT_NCCL, RELEVANT_NCCL, IRRELEVANT_NCCL, NOT_NCCL, NOT_NCCL]
    assert [shapes.of_lines("\n".join(lines)) for _ in range(2)] == [kinds] * 2
    assert len(shapes) <= 2


def test_colours_of_a_launcher_hide_nothing(tmp_path: Path) -> None:
    lines = [CHANNEL, f"{RANK}comm 0x1 rank 0 nranks 16"]
    (tmp_path / "0.log").write_text("".join(f"\x1b[36m(head, rank=0)\x1b[0m {line}\n" for line in lines))
    (run,) = from_logs.read_job_result([tmp_path]).runs
    assert run.channels == {"NET/Libfabric/GDRDMA": 1}
    assert [node.ranks for node in run.nodes] == [(0,)]


# Tokens that expressions of the table begin with or contain, and what a terminal would act on.
TOKENS = [
    "NET/OFI ",
    "NCCL INFO ",
    "NCCL INFO NET/OFI ",
    "NCCL INFO NET/Plugin: lib=/",
    "NCCL INFO NET/IB : Using [0]/IB {[0]",
    "NCCL WARN Call to ibv_modify_qp failed with error 22 ",
    "NCCL WARN Got completion from error status=1",
    "NCCL INFO Channel 00/0 : 0[0] -> 8[0] via NET/",
    "create_qp QP ",
    "libfabric: efa: Unr",
    "software emulation   ",
    "\x1b[",
    "\x1b]0;",
    "\x9b0",
    "{",
    '{"a":',
    "a.b-",
    " ",
    "\r",
    "Traceback (most recent call last)",
    "# nThread 1 busbw Test size count ",
]
MARKS = sorted({f"{'' if row.in_any_line else 'NCCL WARN '}{row.mark}" for row in ROWS.values()})


def seconds_of_judging(token: str, line_length: int, size: int, path: Path) -> float:
    """Return the processor time that the verdict takes on a log of this token: other work does not count."""
    lines = [token * (line_length // len(token)) + str(n) for n in range(size // line_length)]
    path.write_text("\n".join(["NCCL version 2.28.9", *lines]), encoding="utf-8", errors="replace")
    start = time.process_time()
    assert judge_log(path).sentence.isprintable()
    return time.process_time() - start


@pytest.mark.parametrize("line_length", [1 << 20, 2000])
def test_a_megabyte_of_anything_is_judged_within_two_seconds(line_length: int, tmp_path: Path) -> None:
    taken = {token: seconds_of_judging(token, line_length, 1 << 20, tmp_path / "log") for token in TOKENS}
    assert {token: seconds for token, seconds in taken.items() if seconds > 2} == {}


def test_no_wording_takes_long_where_its_beginning_is_repeated(tmp_path: Path) -> None:
    assert max(seconds_of_judging(mark, 2000, 1 << 17, tmp_path / "log") for mark in MARKS) < 0.25


def test_a_job_reads_its_log_with_python_alone(tmp_path: Path) -> None:
    """On a node there is neither PyYAML nor anything else of this project's host."""
    (tmp_path / "patterns.json").write_text(json.dumps(facts_file.read(NcclLogFacts).plain()))
    code = f"""
import json, sys
sys.path.insert(0, {str(paths.PROJECT)!r})
from rdma_images.nccl_logs.verdict import judge_lines
from rdma_images.nccl_logs.log_patterns import LogPatterns
lines = open({str(paths.PROJECT / "tests/data/nccl-logs/net-socket.log")!r}).read().splitlines()
print(judge_lines(lines, LogPatterns(json.load(open("patterns.json")))).sentence)
names = {{name.partition(".")[0] for name in sys.modules}} - set(sys.stdlib_module_names) - {{"rdma_images"}}
print(sorted(name for name in names if not name.startswith("_")))
"""
    words = [sys.executable, "-I", "-S", "-c", code]
    completed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    sentence, foreign = completed.stdout.splitlines()
    assert sentence == judge_log(paths.PROJECT / "tests/data/nccl-logs/net-socket.log").sentence
    assert foreign == "[]"
