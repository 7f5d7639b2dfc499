"""Two results side by side."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.jobs.results import compare, from_logs, run_files
from tests.support.results_parts import P5, TWO, judged

SLOWER = ((8, 29.1, 0.0, 0.0, 0), (1 << 30, 4607.6, 200.0, 375.0, 0), (1 << 34, 66132.0, 252.0, 472.5, 0))


def test_each_size_has_its_ratio_and_the_largest_is_the_sentence(tmp_path: Path) -> None:
    first, second = judged(tmp_path / "a"), judged(tmp_path / "b", rows=SLOWER)
    result = compare.compare(first, second)
    assert [line.ratio and round(line.ratio, 3) for line in result.sizes] == [None, 0.858, 0.97]
    assert result.sentence == (
        "all_reduce of 16 GiB: 472.5 GB/s after 487.1, 0.97 times the first; "
        "by more than 5% slower at 1 and faster at 0 of 3 sizes"
    )


def test_what_else_differs_is_reported(tmp_path: Path) -> None:
    first = judged(tmp_path / "a")
    second = judged(tmp_path / "b", [replace(node, plugin="1.20.0", gdr=False) for node in TWO])
    differences = {name: (difference, other) for name, difference, other in compare.compare(first, second).differences}
    assert differences["plugin"] == ("1.21.1", "1.20.0")
    assert differences["GPUDirect"] == ("yes", "no")
    assert "nodes" not in differences


def test_results_without_a_common_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="-b, -e and -f"):
        compare.compare(judged(tmp_path / "a", rows=P5[:1]), judged(tmp_path / "b", rows=P5[1:]))


def test_a_result_and_logs_can_be_compared(tmp_path: Path) -> None:
    first = judged(tmp_path / "a")
    run_files.write(first, tmp_path / "a")
    (tmp_path / "a" / "logs" / "0.log").unlink()
    loaded, read = (
        from_logs.read_result(tmp_path / "a"),
        from_logs.read_result(tmp_path / "b" if judged(tmp_path / "b") else tmp_path),
    )
    assert loaded == first
    assert compare.compare(loaded, read).sizes
    assert compare.compare(loaded, read).sizes
