"""Expected errors, of the input or the surroundings: shown in words, without a traceback."""

from collections.abc import Iterable
from difflib import get_close_matches

from rdma_images.core import exit_codes, versions


class RdmaImagesError(Exception):
    """An expected error. The message says what was wrong, where, and the fix.

    `exit_code` is the process's, one of core/exit_codes.py.
    """

    exit_code = exit_codes.FAILED

    def details(self) -> object | None:
        """Return what to show before the message, as text or a rich table; None for nothing."""
        return None


class RefusedError(RdmaImagesError):
    """The request cannot work, or names something unknown; nothing was downloaded or built."""

    exit_code = exit_codes.REFUSED


def first_line(error: BaseException) -> str:
    """Return the problem without its fix, for an error quoted in another sentence."""
    return str(error).partition("\n")[0]


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return "did you mean x or y?" of the known words nearest to `word`; "" where none is near.

    Of a version that is typed in part, the releases of it are nearest, the last one first: 2.10.0 of 2.10, and of 2.1,
    which is what YAML reads in 2.10. Of any other version, the ones before and after it are, or three at an end.
    """
    words = list(words)
    parts = ([name for name in reversed(words) if name.startswith(f"{word}{suffix}")][:3] for suffix in (".", "0."))
    close = next(filter(None, parts), None) or _neighbours(word, words) or get_close_matches(word, words, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else ""


def suggestion(word: str, words: Iterable[str]) -> str:
    """Return `did_you_mean`, or all known words where none is near: "choose from x, y, z"."""
    words = list(words)
    return did_you_mean(word, words) or f"choose from {', '.join(words)}"


def _neighbours(word: str, words: Iterable[str]) -> list[str]:
    """Return the version after `word` and the one before it, three where all are on one side; none for no version."""
    try:
        ordered = versions.newest_first({word, *(name for name in words if name[:1].isdecimal())})
    except ValueError:  # no version, or one with more digits than Python reads
        return []
    newer, older = ordered[: ordered.index(word)], ordered[ordered.index(word) + 1 :]
    return [newer[-1], older[0]] if newer and older else [*newer[:-4:-1], *older[:3]]
