"""Show the layers of a push in a line every ten seconds."""

import sys
import time
from collections.abc import Callable

from rdma_images.core.sizes import format_bytes
from rdma_images.publish.push_events import PushProgress

_SECONDS_BETWEEN_LINES = 10.0


class LineProgress:
    """The lines of a publication: its steps, and how far a push is."""

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


def progress_display() -> LineProgress:
    """Return a display on standard error."""
    return LineProgress(lambda text: print(text, file=sys.stderr, flush=True))
