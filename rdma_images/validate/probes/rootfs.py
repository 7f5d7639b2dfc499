"""A file system, read without starting anything of it: that of a container from inside, or one below a folder."""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

SKIPPED = {"/proc", "/sys", "/dev"}
MAX_LINKS = 40  # the kernel's limit: path_resolution(7)


class RootEntry(NamedTuple):
    """A file, folder or link, with stat's mode and size; `target` of a link.

    Names of the same file have the same `identity`. A mode of 0 is that of an entry which may not be looked at.
    """

    path: str
    mode: int
    size: int
    identity: str
    target: str = ""


class Root:
    """The file system below a folder.

    Its paths begin with "/", and its links lead within it, as in a container.
    """

    def __init__(self, folder: str = "/") -> None:
        """Take `folder` for "/"."""
        self.folder = folder.rstrip("/")

    def entry(self, path: str) -> RootEntry | None:
        """Return the entry at `path`, whose folders must be no links; None where nothing is there."""
        try:
            return _entry(path, os.lstat(self.folder + path), self.folder + path)
        except ValueError:  # a null byte, which an image's own files may have in a name
            return None
        except OSError as error:
            return RootEntry(path, 0, 0, "") if error.errno == errno.EACCES else None

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; none where it is no folder, or may not be listed."""
        try:
            return sorted(os.listdir(self.folder + self.real(folder)))
        except (OSError, ValueError):
            return []

    def read_head(self, path: str, size: int) -> bytes | None:
        """Return the first `size` bytes of the file behind `path`; None if unreadable."""
        if not self.is_file(path):  # opening a pipe may block for ever
            return None
        try:
            with open(self.folder + self.real(path), "rb") as file:
                return file.read(size)
        except OSError:
            return None

    def apply(self, read: Callable[[str], Any], path: str) -> Any:
        """Return `read` of the regular file behind `path`, or of /dev/null for none.

        `read` takes the path of a file of this system, and returns an answer whatever is in it.
        """
        name = self.folder + self.real(path) if self.is_file(path) else os.devnull
        return renamed(read(name), name, path)

    def entries(self, volumes: Iterable[str] = ()) -> Iterator[RootEntry]:
        """Yield all of the file system of "/", folders first, links not followed.

        `volumes` are folders whose file systems belong to it too.
        """
        devices = {os.stat(self.folder + path).st_dev for path in ("/", *volumes)}
        folders = [self.folder + "/"]
        while folders:
            try:
                children = list(os.scandir(folders.pop()))
            except OSError:
                continue
            for child in children:
                path = child.path[len(self.folder) :]
                try:
                    status = child.stat(follow_symlinks=False)
                    entry = _entry(path, status, child.path)
                except OSError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    if path in SKIPPED or status.st_dev not in devices:
                        continue
                    folders.append(child.path)
                yield entry

    def real(self, path: str) -> str:
        """Return `path` with every link on the way followed; a loop of links ends at any of its links."""
        resolved, steps, links = "/", path.split("/"), 0
        while steps:
            step = steps.pop(0)
            if step in ("", ".", ".."):
                resolved = os.path.dirname(resolved) if step == ".." else resolved
                continue
            path_so_far = "%s/%s" % (resolved if resolved != "/" else "", step)
            entry = self.entry(path_so_far)
            if not entry or not entry.target:
                resolved = path_so_far
                continue
            links += 1
            if links > MAX_LINKS:
                return path_so_far
            resolved = "/" if entry.target.startswith("/") else resolved
            steps = entry.target.split("/") + steps
        return resolved

    def behind(self, path: str) -> RootEntry | None:
        """Return the entry behind all links; a link for a loop, None for nothing."""
        return self.entry(self.real(path))

    def exists(self, path: str) -> bool:
        """Return whether something is at `path`, with links followed."""
        entry = self.behind(path)
        return bool(entry and entry.mode and not entry.target)

    def is_file(self, path: str) -> bool:
        """Return whether a regular file is at `path`, with links followed."""
        entry = self.behind(path)
        return bool(entry and stat.S_ISREG(entry.mode))

    def text(self, path: str, size: int) -> str | None:
        """Return the first `size` bytes of a regular file as text; None where it cannot be read."""
        content = self.read_head(path, size)
        return None if content is None else content.decode("utf-8", "replace")

    def glob(self, pattern: str) -> list[str]:
        """Return the sorted paths that match a shell pattern.

        "*" matches no "/" and no dot at the start of a name.
        """
        paths = ["/"]
        for step in pattern.strip("/").split("/"):
            matching_paths = []
            for folder in paths:
                names = self.names(folder) if "*" in step else [step]
                matching = [n for n in names if n == step or (not n.startswith(".") and fnmatch.fnmatchcase(n, step))]
                matching_paths += [os.path.join(folder, name) for name in matching]
            paths = matching_paths
        return [path for path in paths if self.exists(path)]


def renamed(answer: Any, name: str, path: str) -> Any:
    """Return an answer about the file `name` whose error names it by its `path` in the image."""
    if isinstance(answer, dict) and answer.get("error"):
        return {**answer, "error": answer["error"].replace(name, path)}
    return answer


def _entry(path: str, status: os.stat_result, name: str) -> RootEntry:
    target = os.readlink(name) if stat.S_ISLNK(status.st_mode) else ""
    identity = "%x:%x" % (status.st_dev, status.st_ino)
    return RootEntry(path, status.st_mode, status.st_size, identity, target)
