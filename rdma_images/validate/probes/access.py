"""The files that the image's user may read, by their modes and those of the folders above."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rdma_images.validate.probes import rootfs


class Ownership(NamedTuple):
    """Mode, owner and group of a file or folder."""

    mode: int
    owner: int
    group: int


class User(NamedTuple):
    """A user by number, with all groups; `named` says whether /etc/passwd has it."""

    number: int
    groups: frozenset[int]
    named: bool = True


ROOT = User(0, frozenset({0}))


def parse_user(text: str, passwd: str, group: str) -> User | None:
    """Return the user that an image names by its /etc/passwd and /etc/group.

    The text is "", "1000", "name" or "name:group". None for one that those files do not know: the engine would not
    start it either.
    """
    name, _, group_name = text.partition(":")
    rows = {row[0]: row for row in _rows(passwd) if row[3].isdigit()}
    by_number = {row[2]: row for row in rows.values()}
    row = rows.get(name or "root") or by_number.get(name or "0")
    if not row and not name.isdigit():
        return ROOT if name in ("", "root") else None
    number, first = (int(row[2]), int(row[3])) if row else (int(name), 0)
    groups = {r[0]: r for r in _rows(group)}
    if group_name:
        chosen = groups.get(group_name)
        if not chosen and not group_name.isdigit():
            return None
        return User(number, frozenset({int(chosen[2]) if chosen else int(group_name)}), bool(row))
    group_numbers = {int(r[2]) for r in groups.values() if row and row[0] in r[3].split(",")}
    return User(number, frozenset({first, *group_numbers}), bool(row))


def _rows(text: str) -> Iterator[list[str]]:
    """Yield the rows of passwd(5) or group(5) with a number."""
    for line in text.splitlines():
        row = line.split(":")
        if len(row) > 3 and row[2].isdigit():
            yield row


def blocking_path(path: str, user: User, owned: dict[str, Ownership]) -> str:
    """Return the folder or file that keeps `user` from reading the file at `path`.

    "" where nothing does.
    """
    steps = path.split("/")
    for folder in ("/".join(steps[:count]) for count in range(2, len(steps))):
        if folder in owned and not _may(owned[folder], user, stat.S_IXOTH):
            return folder
    return "" if path not in owned or _may(owned[path], user, stat.S_IROTH) else path


def home(text: str, passwd: str) -> str:
    """Return the home of an image's user by its /etc/passwd; "" for one without a name."""
    name = text.partition(":")[0]
    return next((row[5] for row in _rows(passwd) if name in (row[0], row[2]) and len(row) > 5), "")


def unwritable(user: User, folders: Mapping[str, str], root: rootfs.Root) -> dict[str, list[str]]:
    """Return the `folders`, by a name, that `user` may neither write to nor make.

    Each with its path and the folder that refuses: the nearest one above that is there.
    """
    refused = {}
    for name, path in folders.items():
        folder, owned = os.path.normpath(path), {}
        while folder != "/" and not os.path.isdir(root.folder + root.real(folder)):
            folder = os.path.dirname(folder)
        real = root.real(folder)
        steps = real.split("/")
        for above in ("/".join(steps[:count]) or "/" for count in range(1, len(steps) + 1)):
            status = os.stat(root.folder + above)
            owned[above] = Ownership(status.st_mode, status.st_uid, status.st_gid)
        if not may_write(real, user, owned):
            refused[name] = [path, folder]
    return refused


def may_write(folder: str, user: User, owned: dict[str, Ownership]) -> bool:
    """Return whether `user` may make files in `folder`."""
    return not blocking_path(folder + "/.", user, owned) and _may(owned[folder], user, stat.S_IWOTH)


def _may(owned: Ownership, user: User, right: int) -> bool:
    """Return whether `user` has a right, given as others' bit, as stat.S_IROTH."""
    if user.number == 0:
        return True
    if owned.owner == user.number:
        return bool(owned.mode >> 6 & right)
    return bool((owned.mode >> 3 if owned.group in user.groups else owned.mode) & right)
