"""Compare versions of Debian packages. Source: Debian Policy 5.6.12, and deb-version(7)."""

import re
from functools import lru_cache

Key = tuple[int, tuple[tuple[int, ...] | int, ...], tuple[tuple[int, ...] | int, ...]]

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")


@lru_cache(maxsize=65536)
def key(version: str) -> Key:
    """Return the sort key of a Debian version: epoch, upstream version, revision."""
    epoch, colon, remainder = version.strip().partition(":")
    if not colon:
        epoch, remainder = "0", epoch
    upstream, _, revision = remainder.rpartition("-") if "-" in remainder else (remainder, "", "0")
    return int(epoch) if re.fullmatch("[0-9]{1,9}", epoch) else 0, _parts(upstream), _parts(revision)


def _parts(text: str) -> tuple[tuple[int, ...] | int, ...]:
    """Return words and numbers in turn. A word ends with 0, which is after "~" and before every other character."""
    parts: list[tuple[int, ...] | int] = []
    for word, digits in _PARTS.findall(text)[:-1] or [("", "")]:
        parts.append((*(_order(character) for character in word), 0))
        parts.append(int(digits[:4000] or 0))  # Python converts no longer text, and no version has one
    return (*parts, (0,), 0)


def _order(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 0x110000
