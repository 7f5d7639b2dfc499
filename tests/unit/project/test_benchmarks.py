"""The page of measurements: figures name their run, and a ratio is of one run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.core import paths

sys.path.insert(0, str(paths.PROJECT / "benchmarks"))

import build_baseline
import build_page
import build_results
from build_results import BenchmarkRun, Figure, MixedRunsError, Results

FIRST = BenchmarkRun("2026-11-21 09:00", "abc1234", "2 cores, 25 GB of memory, Linux 6.1")
SECOND = BenchmarkRun("2026-11-23 09:00", "abc1234", "2 cores, 25 GB of memory, Linux 6.1")
RESULT = paths.PROJECT / "tests" / "data" / "results" / "2.19.6-tcp-provider.txt"


def test_each_stage_of_the_baseline_follows_the_one_that_it_is_made_from() -> None:
    golden = (paths.PROJECT / "tests" / "data" / "golden" / "efa-pytorch.Dockerfile").read_text()
    stages = re.findall(r"(?m)^FROM (\S+) AS (\S+)", build_baseline.baseline_dockerfile(golden, ["torch==2.15.0"]))
    assert [parent for parent, _ in stages] == ["base", *(name for _, name in stages[:-1])]
    assert stages[-1][1] == "image"


def test_a_ratio_of_two_runs_is_refused() -> None:
    assert build_results.ratio(Figure(10, FIRST), Figure(4, FIRST)) == 2.5
    assert build_results.ratio(Figure(10, FIRST), None) is None
    with pytest.raises(MixedRunsError, match=r"2026-11-21 09:00.* and 2026-11-23 09:00"):
        build_results.ratio(Figure(10, FIRST), Figure(4, SECOND))


def cold(ours: BenchmarkRun) -> Results:
    results = Results()
    results.start("cold", "s", ["baseline"], FIRST).add("baseline", 300, 1)
    results.start("cold", "s", ["ours"], ours).add("ours", 60, 1)
    return results


def test_a_new_run_of_one_way_leaves_no_ratio_beside_the_old_figure() -> None:
    goal = build_page.GOALS[0]
    letters = {FIRST: "A", SECOND: "B"}
    assert build_page.goal_verdict(goal, cold(FIRST), letters) == ("5.0 times", "yes")
    assert build_page.goal_verdict(goal, cold(SECOND), letters) == ("of two runs (A, B), not compared", "")


def test_results_are_read_back_with_their_runs(tmp_path: Path) -> None:
    file = tmp_path / "performance.json"
    cold(SECOND).save(file)
    assert build_results.load(file) == cold(SECOND)


def test_the_page_has_no_ratio_of_two_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build_page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(build_page, "CHART", tmp_path / "page.svg")
    build_page.write(cold(SECOND))
    page, chart = (tmp_path / "page.md").read_text(), (tmp_path / "page.svg").read_text()
    assert "of two runs (A, B), not compared" in page
    assert "5.0 times" not in page + chart
    assert f"- B: {SECOND}" in page


def test_the_page_in_docs_is_of_the_figures_in_docs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    committed = {file: file.read_text() for file in (build_page.PAGE, build_page.CHART)}
    for name, file in (("PAGE", build_page.PAGE), ("CHART", build_page.CHART)):
        monkeypatch.setattr(build_page, name, tmp_path / file.name)
    build_page.write(build_results.load())
    assert {file: (tmp_path / file.name).read_text() for file in committed} == committed
    assert set(json.loads(build_results.FILE.read_text())) == {"rows"}


def test_a_benchmark_of_results_judges_a_folder_of_logs(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(RESULT.read_bytes())
    command = [sys.executable, str(paths.PROJECT / "benchmarks" / "job_verdict.py"), str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=paths.PROJECT)
    assert re.fullmatch(r"\d+ \S.*\n", answer.stdout)
