"""What casts doubt on an installed package: a requirement that is not met, a file that is lost, or compiled modules."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

RELEASE = re.compile(r"\d+(?:\.\d+)*")
CLAUSE = re.compile(r"(===?|~=|!=|<=|>=|<|>)\s*v?([\w.*+!-]+)")
OF_SYSTEM = "/usr/lib/python3/dist-packages"  # whose packages a distribution keeps together


def is_unmet(specifiers: str, marker: str, version: str | None) -> bool:
    """Return whether a requirement may be unmet by the `version` that is installed, None for none.

    Releases alone are compared, and of what is required for some machines alone only the version that is there: a
    package that is doubted in vain is imported, and no more.
    """
    if "extra" in marker:
        return False
    if version is None:
        return not marker
    installed = _release(version)
    return bool(installed) and not all(
        _accepts(operator, wanted, installed) for operator, wanted in CLAUSE.findall(specifiers)
    )


def _accepts(operator: str, wanted: str, installed: tuple[int, ...]) -> bool:
    """Return whether a release meets one clause of a requirement."""
    release = _release(wanted)
    if not release:
        return True
    size = max(len(release), len(installed))
    left, right = (numbers + (0,) * (size - len(numbers)) for numbers in (installed, release))
    begins = installed[: len(release)] == release
    return {
        "==": begins if wanted.endswith("*") else left == right,
        "===": left == right,
        "!=": not begins if wanted.endswith("*") else left != right,
        "~=": left >= right and left[: len(release) - 1] == release[:-1],
        "<=": left <= right,
        ">=": left >= right,
        "<": left < right,
        ">": left > right,
    }[operator]


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version; nothing where it begins with none."""
    match = RELEASE.match(version.rpartition("!")[2])
    return tuple(map(int, match.group().split("."))) if match else ()


def lost_file(folder: str, files: Mapping[str, int]) -> str:
    """Return the first module that a package's RECORD lists and that is not there, else one of another size.

    "" where all are as they were installed.
    """
    changed = ""
    for path, size in files.items():
        if path.endswith((".py", ".so")) and path[0] not in "./":
            try:
                found = os.stat("%s/%s" % (folder, path)).st_size
            except OSError:
                return path
            changed = changed or (path if size > 1 and found != size else "")
    return changed
