"""The dynamic loader's choices, computed from files that were exported from an image: see ld.so(8).

For images without Python. Where there is one, probes/loader.py asks the image's own loader, whose answer counts:
it knows its build's default folders and its hardware's subfolders, which are not computed here.
Asking it needs a process inside, and an image without Python may hold nothing that could start one.
"""

import functools
import posixpath
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from rdma_images.validate.probes import conditions, libraries, loader
from rdma_images.validate.probes.libraries import linkage
from rdma_images.validate.probes.rootfs import Root

CACHE_MAGIC = b"glibc-ld.so.cache1.1"
HEADER, ENTRY = 48, 24  # bytes, glibc's sysdeps/generic/dl-cache.h
DEFAULT_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
# The loader, as programs name it: Debian's also knows the folder that it lies in itself, /usr/lib/x86_64-linux-gnu.
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
MAX_CACHE_BYTES = 32 << 20  # bytes: of a system with thousands of libraries it has 200,000
PROGRAM_CONDITIONS = ("no-library",)  # the loader lists programs, too


class ComputedLoader:
    """The image's loader by its files; the counterpart of libraries.ImageLoader."""

    method = "the image's ld.so.cache, read without running it"

    def __init__(self, root: Root, environment: Mapping[str, str], machine: str) -> None:
        """Read the loader's cache below `root`. `machine` is the image's, such as "x86_64"."""
        self.root, self.machine, self.environment = root, machine, environment
        self.library_path = tuple(filter(None, environment.get("LD_LIBRARY_PATH", "").split(":")))
        self.cache = cache(root.read_head("/etc/ld.so.cache", MAX_CACHE_BYTES) or b"")
        loaders = (posixpath.dirname(root.real(path)) for path in LOADERS)
        self.folders = tuple(dict.fromkeys((*loaders, *DEFAULT_FOLDERS)))
        self.condition = functools.lru_cache(maxsize=None)(lambda file: conditions.path_condition(root, file, machine))
        files = [file for word in loader.preloads(root, environment) if (file := self.find(word))]
        linkages = [(file, link_facts) for file in files if (link_facts := root.apply(linkage, file))]
        # By the name that a library then gets it for.
        self.preloaded = {
            link_facts["soname"] or posixpath.basename(file): file for file, link_facts in reversed(linkages)
        }

    def resolve_name(self, name: str, requiring_file: str | None = None) -> dict[str, str]:
        """Return where dlopen(name) ends, see loader.resolve_name."""
        path = self.path(name, requiring_file or "")
        if not path:
            return {"path": "", "file": "", "error": f"{name}: not in {self.method}, not in the default folders"}
        why = self.condition(self.root.real(path))
        return {"path": path, "file": self.root.real(path), "error": f"{path}: {why}" if why else ""}

    def closure(self, path: str, _bound: bool = True) -> dict[str, Any]:
        """Return every library that `path` pulls in, as loader.closure does, but compare no symbols and versions."""
        paths, missing = self.needed_by(path)
        faults = [f"{path}: {why}"] if (why := self.condition(path)) and why not in PROGRAM_CONDITIONS else []
        faults += [f"{file}: {why} (required by {path})" for file in paths.values() if (why := self.condition(file))]
        return {"libraries": paths, "missing": missing, "faults": faults, "error": ""}

    def without_path(self, names: Iterable[str]) -> dict[str, str]:
        """Return the files that `names` lead to without LD_LIBRARY_PATH."""
        loader = ComputedLoader(self.root, {**self.environment, "LD_LIBRARY_PATH": ""}, self.machine)
        return {name: loader.find(name) for name in names}

    def find(self, name: str, requiring_file: str = "") -> str:
        """Return the file that the loader takes for `name`; "" for none.

        `requiring_file` is what needs it. As by the loader, a library for another machine is passed over, and a file
        that is no library is taken.
        """
        path = self.path(name, requiring_file)
        return self.root.real(path) if path else ""

    def path(self, name: str, requiring_file: str = "") -> str:
        """Return the path under which the loader takes `name`, "" for none; see find."""
        for path in self._candidates(name, requiring_file):
            if conditions.condition_kind(self.condition(self.root.real(path))) not in conditions.SKIPPED:
                return path
        return ""

    def needed_by(self, path: str) -> tuple[dict[str, str], list[str]]:
        """Return the libraries that `path` pulls in, by name, and the missing names.

        Preloaded libraries are found by their sonames before anything is searched for.
        """
        paths: dict[str, str] = {}
        missing: list[str] = []
        todo = [(name, path) for name in libraries.needed_libraries(self.root, path)]
        while todo:
            name, asker = todo.pop(0)
            if name in paths or name in missing:
                continue
            real = self.preloaded.get(name) or self.find(name, asker)
            if real:
                paths[name] = real
                todo += [(needed, real) for needed in libraries.needed_libraries(self.root, real)]
            else:
                missing.append(name)
        return paths, missing

    def _candidates(self, name: str, requiring_file: str) -> list[str]:
        if "/" in name:
            return [name]
        link_facts = self.root.apply(linkage, requiring_file) if requiring_file else {}
        runpath = link_facts.get("runpath", ())
        folders = [] if runpath else self._rpath(requiring_file)
        folders += [*self.library_path, *(_expand(folder, requiring_file) for folder in runpath)]
        candidates = [f"{folder}/{name}" for folder in folders]
        return [*candidates, *self.cache.get(name, ()), *(f"{folder}/{name}" for folder in self.folders)]

    def _rpath(self, path: str) -> list[str]:
        """Return the folders of a file's RPATH, which counts where it has no RUNPATH; none for ""."""
        file = self.root.real(path) if path else ""
        link_facts = self.root.apply(linkage, file) if file else {}
        return [_expand(folder, file) for folder in link_facts.get("rpath", ()) if not link_facts["runpath"]]


def _expand(folder: str, origin: str) -> str:
    origin_folder = posixpath.dirname(origin)
    return posixpath.normpath(folder.replace("${ORIGIN}", origin_folder).replace("$ORIGIN", origin_folder))


def cache(content: bytes) -> dict[str, tuple[str, ...]]:
    """Return the names in an ld.so.cache and where each is, in the loader's order.

    Empty for a cache that is not glibc's.
    """
    start = content.find(CACHE_MAGIC)
    if start < 0:
        return {}
    locations: dict[str, list[str]] = {}
    try:
        (count,) = struct.unpack_from("<I", content, start + len(CACHE_MAGIC))
        for number in range(count):
            _flags, key, value = struct.unpack_from("<iII", content, start + HEADER + number * ENTRY)
            locations.setdefault(_text(content, start + key), []).append(_text(content, start + value))
    except struct.error:
        return {}
    return {name: tuple(paths) for name, paths in locations.items()}


def _text(content: bytes, offset: int) -> str:
    return content[offset : content.find(b"\0", offset)].decode("utf-8", "replace")
