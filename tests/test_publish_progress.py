"""Bars on a terminal, lines now and then elsewhere."""

import io

from rich.console import Console

from rdma_images.publish.events import Push
from rdma_images.publish.progress import Bars, Lines, mebibytes


def pushing(current, total=100 << 20, layer="9d1c09127175"):
    push = Push()
    push.take({"status": "Pushing", "progressDetail": {"current": current, "total": total}, "id": layer}, "h", "r")
    return push


def test_lines_come_every_ten_seconds():
    now = [0.0]
    said = []
    lines = Lines(said.append, lambda: now[0])
    push = pushing(10 << 20)
    for second in range(25):
        now[0] = float(second)
        lines.moved(push)
    assert said == ["  0 of 1 layers, 10.0 MiB of 100.0 MiB sent"] * 2


def test_a_bar_comes_with_a_layer_and_goes_when_it_has_arrived():
    screen = io.StringIO()
    with Bars(Console(file=screen, force_terminal=True, width=100)) as bars:
        push = pushing(50 << 20)
        bars.moved(push)
        bars.moved(push)
        bars._progress.refresh()
        assert "9d1c09127175" in screen.getvalue()
        assert "50.0/100.0 MiB" in screen.getvalue()
        push.take({"status": "Pushed", "progressDetail": {}, "id": "9d1c09127175"}, "h", "r")
        bars.moved(push)
        assert not bars._progress.tasks
        bars.line("a [line] as it is")
    assert "a [line] as it is" in screen.getvalue()


def test_sizes():
    assert mebibytes(1536 << 10) == "1.5 MiB"
    assert mebibytes(3 << 30) == "3.00 GiB"
