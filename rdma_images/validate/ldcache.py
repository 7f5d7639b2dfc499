"""What the dynamic loader would find, computed from files that were exported from an image: see ld.so(8).

For images without Python. Where there is one, probes/loader.py asks the image's own loader, whose answer counts:
it knows its build's default folders and its hardware's subfolders, which are not computed here.
Asking it needs a process inside, and an image without Python may hold nothing that could start one.
"""

import posixpath
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rdma_images.validate.probes.conditions import SKIPPED, kind

MAGIC = b"glibc-ld.so.cache1.1"
HEADER, ENTRY = 48, 24  # bytes, glibc's sysdeps/generic/dl-cache.h
DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
# The loader, as programs name it: Debian's also knows the folder that it lies in itself, /usr/lib/x86_64-linux-gnu.
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
MOST_LINKS = 40  # as the kernel has it


@dataclass(frozen=True)
class About:
    """What an ELF file says of itself, as far as the loader cares."""

    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadOut:
    """The parts of a file system that decide what the loader finds. Paths are absolute, as in the image."""

    libraries: Mapping[str, About]  # real files
    links: Mapping[str, str]
    conditions: Mapping[str, str] = field(default_factory=dict)  # of real files that are no library of the machine
    cache: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    library_path: tuple[str, ...] = ()  # LD_LIBRARY_PATH
    preloaded: Mapping[str, str] = field(default_factory=dict)  # by the name that a library then gets it for

    def real(self, path: str) -> str:
        """Return `path` with every link on the way followed; a loop of links ends where it stands."""
        done, steps = "/", [step for step in path.split("/") if step]
        for _ in range(MOST_LINKS * 10):
            if not steps:
                return done
            step = steps.pop(0)
            path_so_far = posixpath.normpath(posixpath.join(done, step))
            target = self.links.get(path_so_far)
            if target is None:
                done = path_so_far
                continue
            if target.startswith("/"):
                done = "/"
            steps = [part for part in target.split("/") if part and part != "."] + steps
        return path

    def find(self, name: str, asked_by: str = "") -> str:
        """Return the real file that the loader takes for `name`, "" for none. `asked_by` is the file that needs it.

        What is for another machine is not taken, and what is no library at all is: see refused.
        """
        return self._existing(self.path(name, asked_by))

    def path(self, name: str, asked_by: str = "") -> str:
        """Return the path under which the loader takes `name`, "" for none; see find."""
        return next((path for path in self._candidates(name, asked_by) if self._existing(path)), "")

    def refused(self, file: str) -> str:
        """Return why the loader cannot map a real file that it takes, as conditions.of_content has it.

        "" where it can.
        """
        return self.conditions.get(file, "")

    def _candidates(self, name: str, asked_by: str) -> list[str]:
        if "/" in name:
            return [name]
        asker = self.libraries.get(asked_by, About())
        before = () if asker.runpath else asker.rpath
        folders = [_expand(f, asked_by) for f in before]
        folders += self.library_path
        folders += [_expand(f, asked_by) for f in asker.runpath]
        candidates = [f"{folder}/{name}" for folder in folders]
        return [*candidates, *self.cache.get(name, ()), *(f"{folder}/{name}" for folder in self._default)]

    @cached_property
    def _default(self) -> tuple[str, ...]:
        """The folders that the loader knows by itself."""
        return tuple(dict.fromkeys((*(posixpath.dirname(self.real(path)) for path in LOADERS), *DEFAULT)))

    def closure(self, path: str) -> tuple[dict[str, str], list[str]]:
        """Return every library that `path` pulls in, by name, and the names that nothing answers to.

        What is preloaded is there under its soname before anything is searched for.
        """
        paths: dict[str, str] = {}
        missing: list[str] = []
        todo = [(name, path) for name in self.libraries.get(path, About()).needed]
        while todo:
            name, asker = todo.pop(0)
            if name in paths or name in missing:
                continue
            real = self.preloaded.get(name) or self.find(name, asker)
            if real:
                paths[name] = real
                todo += [(needed, real) for needed in self.libraries.get(real, About()).needed]
            else:
                missing.append(name)
        return paths, missing

    def _existing(self, path: str) -> str:
        real = self.real(path) if path else ""
        if kind(self.conditions.get(real, "")) in SKIPPED:
            return ""
        return real if real in self.libraries or real in self.conditions else ""


def _expand(folder: str, origin: str) -> str:
    origin_folder = posixpath.dirname(origin)
    return posixpath.normpath(folder.replace("${ORIGIN}", origin_folder).replace("$ORIGIN", origin_folder))


def cache(data: bytes) -> dict[str, tuple[str, ...]]:
    """Return the names in an ld.so.cache and where each is, in the loader's order.

    Empty for a cache that is not glibc's.
    """
    start = data.find(MAGIC)
    if start < 0:
        return {}
    locations: dict[str, list[str]] = {}
    try:
        (count,) = struct.unpack_from("<I", data, start + len(MAGIC))
        for number in range(count):
            _flags, key, value = struct.unpack_from("<iII", data, start + HEADER + number * ENTRY)
            locations.setdefault(_text(data, start + key), []).append(_text(data, start + value))
    except struct.error:
        return {}
    return {name: tuple(paths) for name, paths in locations.items()}


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.find(b"\0", offset)].decode("utf-8", "replace")
