"""Reads and judges the requirements in a package's METADATA: an image's Python may have no `packaging`."""

from __future__ import annotations

import re
from typing import NamedTuple

LINE = re.compile(r"^Requires-Dist: *(.+?) *$", re.MULTILINE)
PARTS = re.compile(r"([A-Za-z0-9][\w.-]*) *(?:\[([^\]]*)\])?([^;]*);?(.*)")
NAMED_EXTRA = re.compile(r"\bextra *== *[\"']([^\"']*)[\"']")
SEPARATORS = re.compile(r"[-_.]+")
CLAUSE = re.compile(r"(===?|~=|!=|<=|>=|<|>)\s*v?([\w.*+!-]+)")
RELEASE = re.compile(r"\d+(?:\.\d+)*")


class PackageRequirement(NamedTuple):
    """A line of Requires-Dist, and its parts; `extras` are of the package that it names."""

    line: str
    name: str
    extras: list[str]
    specifiers: str
    marker: str

    @property
    def is_optional(self) -> bool:
        """Return whether an extra alone requires it."""
        return "extra" in self.marker

    @property
    def required_by(self) -> list[str]:
        """Return the extras that require it; none where the package itself does."""
        return NAMED_EXTRA.findall(self.marker)

    def is_unmet(self, version: str | None) -> bool:
        """Return whether it may be unmet by the `version` that is installed, None for none.

        Releases alone are compared, and of what is required for some machines alone only the version that is there: a
        package that is doubted in vain is imported, and no more.
        """
        if self.is_optional:
            return False
        if version is None:
            return not self.marker
        installed = release_numbers(version)
        clauses = CLAUSE.findall(self.specifiers)
        return bool(installed) and not all(meets_clause(installed, operator, wanted) for operator, wanted in clauses)


def normalized_name(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return SEPARATORS.sub("-", name).lower()


def read_requirements(metadata: str) -> list[PackageRequirement]:
    """Return the requirements in the head of a METADATA, without those that name no package."""
    matches = [(line, PARTS.match(line)) for line in LINE.findall(metadata)]
    return [
        PackageRequirement(
            line,
            normalized_name(match.group(1)),
            [extra.strip() for extra in (match.group(2) or "").split(",") if extra.strip()],
            match.group(3),
            match.group(4),
        )
        for line, match in matches
        if match
    ]


def meets_clause(installed: tuple[int, ...], operator: str, required: str) -> bool:
    """Return whether a release meets one clause of a requirement, as `>=` and `2.1`."""
    release = release_numbers(required)
    if not release:
        return True
    size = max(len(release), len(installed))
    left, right = (numbers + (0,) * (size - len(numbers)) for numbers in (installed, release))
    begins = installed[: len(release)] == release
    return {
        "==": begins if required.endswith("*") else left == right,
        "===": left == right,
        "!=": not begins if required.endswith("*") else left != right,
        "~=": left >= right and left[: len(release) - 1] == release[:-1],
        "<=": left <= right,
        ">=": left >= right,
        "<": left < right,
        ">": left > right,
    }[operator]


def release_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version; nothing where it begins with none."""
    match = RELEASE.match(version.rpartition("!")[2])
    return tuple(map(int, match.group().split("."))) if match else ()
