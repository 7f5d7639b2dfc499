"""Compare versions of any maker: 1.22.0amzn4.0, 1.9.1-aws, 60.amzn0, 2.26.2.post1."""

import re
from collections.abc import Iterable
from functools import lru_cache

Key = tuple[tuple[int, ...], tuple[tuple[int, int, str], ...]]

_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)")
_WORDS = re.compile(r"\d+|[a-z]+")
_BEFORE_RELEASE = frozenset({"a", "alpha", "b", "beta", "c", "rc", "pre"})
_TAG_ONLY = frozenset({"aws"})  # aws-ofi-nccl tagged 1.7.0 to 1.13.2 as "-aws"; the word orders nothing


@lru_cache(maxsize=4096)
def sort_key(version: str) -> Key:
    """Return the sort key of a version: its numbers, then its suffix.

    A release candidate is before its release; anything else that follows ("amzn4.0", "post1", "-1") is after it.
    Raises ValueError for text that does not begin with a number.
    """
    match = _RELEASE.match(version)
    if not match:
        raise ValueError(f"{version!r} is not a version: it must begin with a number")
    numbers = [int(part) for part in match[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    ranks = [_rank(word) for word in _WORDS.findall(version[match.end() :].lower()) if word not in _TAG_ONLY]
    return tuple(numbers), (*ranks, (0, 0, ""))


def _rank(word: str) -> tuple[int, int, str]:
    """Return the rank of a suffix's word: negative for a pre-release, positive otherwise."""
    if word.isdigit():
        return 2, int(word), ""
    if word == "dev":  # before a, b and rc, too (PEP 440)
        return -2, 0, word
    return (-1 if word in _BEFORE_RELEASE else 1), 0, word


def at_least(version: str, minimum: str) -> bool:
    """Return whether `version` is `minimum` or newer."""
    return sort_key(version) >= sort_key(minimum)


_COMPARISON = re.compile(r"(==|>=|<)\s*(\S+)")


def satisfies(version: str, requirement: str) -> bool:
    """Return whether a version meets all parts of a requirement, as ">=2.5,<3" or "==2.14.0".

    Raises ValueError for a requirement of another form.
    """
    for part in requirement.split(","):
        comparison = _COMPARISON.fullmatch(part.strip())
        if not comparison:
            raise ValueError(f"{requirement!r} compares no versions: write as in >=2.5,<3")
        operator, other = comparison.groups()
        if operator == "==" and sort_key(version) != sort_key(other):
            return False
        if operator != "==" and at_least(version, other) != (operator == ">="):
            return False
    return True


def newest_first(versions: Iterable[str]) -> list[str]:
    """Return the versions, the newest first."""
    return sorted(versions, key=sort_key, reverse=True)


def major(version: str) -> int:
    """Return the first number: 13 of 13.0.2."""
    return sort_key(version)[0][0]
