"""Lists in the words of a finding."""

from collections.abc import Sequence

MAX_SHOWN = 8


def shorten_names(names: Sequence[str]) -> str:
    """Return one or two names, or the first and how many others there are."""
    return " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} others"


def shorten_list(entries: Sequence[object]) -> str:
    """Return the first few, and how many more."""
    more = f" and {len(entries) - MAX_SHOWN} more" if len(entries) > MAX_SHOWN else ""
    return ", ".join(map(str, entries[:MAX_SHOWN])) + more
