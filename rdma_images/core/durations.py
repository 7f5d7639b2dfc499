"""Durations as people type and read them."""

import re

from rdma_images.core.errors import RefusedError

_DURATION = re.compile(r"([1-9][0-9]{0,4})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str, option: str) -> int:
    """Return the seconds of "90s", "30m", "4h" or "2d". Raises RefusedError for other text."""
    match = _DURATION.fullmatch(text)
    if not match:
        problem = "has no unit" if text.isdecimal() else "not a time"
        raise RefusedError(f"{option} {text}: {problem}\nwrite it as 90s, 30m, 4h or 2d")
    return int(match[1]) * _SECONDS[match[2]]


def format_minutes(seconds: float) -> str:
    """Return a duration in minutes and seconds: "5:00"."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
