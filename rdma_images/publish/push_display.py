"""Show the layers of a push: as bars on a terminal, as occasional lines elsewhere."""

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from rdma_images.core.sizes import format_bytes
from rdma_images.publish.push_events import PushProgress

_SECONDS_BETWEEN_LINES = 10.0  # seconds between two plain lines: a log is read afterwards


class LineProgress:
    """Plain lines, for logs."""

    def __init__(self, write_line: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.write_line = write_line
        self._clock = clock
        self._last = clock()

    def update(self, push: PushProgress) -> None:
        """Write a line when the last is old enough."""
        if self._clock() - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = self._clock()
        layers = push.layers.values()
        finished = sum(layer.state in ("pushed", "mounted", "present") for layer in layers)
        total = sum(layer.total for layer in layers)
        self.write_line(
            f"  {finished} of {len(layers)} layers, {format_bytes(push.sent())} of {format_bytes(total)} sent"
        )

    def __enter__(self) -> "LineProgress":
        return self

    def __exit__(self, *_: object) -> None:
        return None


class _Rate(ProgressColumn):
    """Bytes a second, in the unit of everything else here."""

    def render(self, task: Task) -> Text:
        """Return nothing until the rate is known."""
        return Text(f"{format_bytes(task.speed)}/s" if task.speed else "")


class ProgressBars:
    """A bar for each layer under way; what is done becomes a line above them and leaves."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("  {task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=False),
            _Rate(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def write_line(self, text: str) -> None:
        """Write a line above the bars."""
        self._progress.console.print(text, markup=False, highlight=False)

    def update(self, push: PushProgress) -> None:
        """Move every bar; a layer that has arrived needs none any more."""
        for layer in push.layers.values():
            task = self._tasks.get(layer.id)
            if layer.state in ("pushed", "mounted", "present"):
                if task is not None:
                    self._progress.remove_task(self._tasks.pop(layer.id))
            elif task is None:
                self._tasks[layer.id] = self._progress.add_task(layer.id, total=layer.total or None)
            else:
                self._progress.update(task, completed=layer.current, total=layer.total or None)

    def __enter__(self) -> "ProgressBars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


ProgressDisplay = LineProgress | ProgressBars  # shows a publication's steps and layers


def progress_display() -> ProgressDisplay:
    """Return bars where standard error is a terminal, else lines."""
    if sys.stderr.isatty():
        return ProgressBars(Console(stderr=True))
    return LineProgress(lambda text: print(text, file=sys.stderr, flush=True))
