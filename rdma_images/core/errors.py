"""What a user did or met, as opposed to a defect of ours: shown as a sentence, never as a traceback."""

from collections.abc import Iterable
from difflib import get_close_matches

from rdma_images.core import exit_codes


class RdmaImagesError(Exception):
    """An expected error. The message says what was wrong, where, and the fix.

    `exit_code` is the process's, one of core/exit_codes.py.
    """

    exit_code = exit_codes.NO

    def details(self) -> object | None:
        """Return what a terminal shows before the message: text or a rich table; None where the message says it all."""
        return None


class RefusedError(RdmaImagesError):
    """What was asked for cannot work, or is not known; nothing was downloaded or built."""

    exit_code = exit_codes.USAGE


def near(word: str, words: Iterable[str]) -> str:
    """Return the known words nearest to `word`, as the end of a sentence: "did you mean x? Choose from x, y, z".

    Of a version that is typed in part, the releases of it are nearest, the last one first: 2.10.0 of 2.10.
    """
    words = list(words)
    releases = [name for name in reversed(words) if name.startswith(f"{word}.")]
    close = releases[:3] or get_close_matches(word, words, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? Choose" if close else "choose"
    return f"{hint} from {', '.join(words)}"
