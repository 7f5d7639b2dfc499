"""Measure an image that has no Python: take its files out and read them here. Nothing of the image runs for this."""

import contextlib
import re
import resource
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from rdma_images import stream
from rdma_images.errors import RdmaImagesError
from rdma_images.paths import PROJECT
from rdma_images.stream import CHUNK
from rdma_images.validate import door
from rdma_images.validate.case import name_of
from rdma_images.validate.ldcache import About, ReadOut, cache
from rdma_images.validate.measured import Measured, lost, measured
from rdma_images.validate.subject import Subject
from validators.probes import elf, leftovers, libraries, measure, packages, system, tree

SHARED = re.compile(r".*\.so(\.[\w.]+)?")
KEPT = re.compile(  # small files that are read where they lie
    r"/var/lib/dpkg/status(?:\.d/.+)?|/etc/ld\.so\.cache|/(?:etc|usr/lib)/os-release|.*\.dist-info/METADATA|.*/nccl\.h"
    r"|/opt/amazon/efa_installed_packages"
)
KEPT_LIMIT = 32 * CHUNK
KEPT_IN_ALL = 512 * CHUNK
LIBRARY_LIMIT = 2048 * CHUNK
MEMORY = 1024 * CHUNK  # bytes that reading may take
SECONDS = 600  # of processor time
PROBES = ("tree", "packages", "system")
SUBJECT, ANSWERS = "subject.json", "answers.json"
METHOD = "the image's ld.so.cache, read out"


@dataclass
class Taken:
    """What is gathered while an image's files stream by."""

    root: Path  # where small files are kept, at their place in the image
    kept: int = 0  # bytes in them
    last: tuple[str, bytes] = ("", b"")  # path and content of the last file that was worth reading for a secret
    shared: dict[str, dict[str, Any]] = field(default_factory=dict)  # ELF libraries by path
    links: dict[str, str] = field(default_factory=dict)
    nccl: dict[str, dict[str, Any]] = field(default_factory=dict)
    plugins: dict[str, dict[str, Any]] = field(default_factory=dict)
    verbs: dict[str, list[str]] = field(default_factory=dict)


def read_out(export: Iterable[bytes], subject: Subject, memory: int = MEMORY) -> Measured:
    """What can be told of the image from its files alone: all but what `import torch` and the tools would say.

    `export` is the tar of its file system. It is read in a process that may take only `memory` (bytes) and SECONDS, as
    files may have been made to take all there is; where that is too little, or the tar is damaged, everything is lost.
    """
    with tempfile.TemporaryDirectory(prefix="rdma-images-readout-") as name:
        folder = Path(name)
        (folder / SUBJECT).write_text(subject.model_dump_json(), encoding="utf-8")
        with (folder / "errors").open("wb") as errors:
            command = [sys.executable, "-m", __name__, name, str(memory)]
            reading = subprocess.Popen(
                command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
            )
            with reading:
                _feed(export, cast(IO[bytes], reading.stdin))
        if reading.returncode:
            said = (folder / "errors").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            why = said[-1] if said else f"reading them ended with {reading.returncode}"
            return lost(PROBES, f"the image's files could not be read: {why}")
        with (folder / ANSWERS).open("rb") as answers:
            return measured(answers.read(door.MOST_BYTES), PROBES)


def _feed(export: Iterable[bytes], into: IO[bytes]) -> None:
    """Hand a tar over. Raises RdmaImagesError where the engine stops handing it out."""
    try:
        with contextlib.suppress(BrokenPipeError), into:  # who reads says itself why it reads no further
            for chunk in export:
                into.write(chunk)
    except OSError as error:
        raise RdmaImagesError(f"the engine stopped handing out the image's files: {error}") from None


def main(folder: Path, memory: int) -> None:
    """Read the tar on standard input, of an image whose subject is in `folder`; the answers are written there."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    subject = Subject.model_validate_json((folder / SUBJECT).read_bytes())
    taken = Taken(folder / "files")
    taken.root.mkdir()
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|", bufsize=CHUNK) as archive:
        files = tree.summary(_entries(archive, taken), lambda path: _small(taken, path))
    answers = {
        "tree": {"value": {"files": files, "libraries": _libraries(taken, files, subject)}},
        "packages": {"value": packages.installed_packages(str(taken.root))},
        "system": {"value": _system(taken, subject)},
    }
    (folder / ANSWERS).write_bytes(measure.as_json(answers))


def _entries(archive: tarfile.TarFile, taken: Taken) -> Iterator[tree.Entry]:
    """Every file of the archive as the tree's summary wants it; libraries are read as they come by."""
    kinds = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK, tarfile.REGTYPE: stat.S_IFREG}
    for number, member in enumerate(stream.members(archive)):
        path = "/" + member.name.removeprefix("./").strip("/")
        mode = member.mode | kinds.get(member.type, 0)
        if member.issym():
            taken.links[path] = member.linkname
        elif member.islnk():  # another name of a file that came before
            taken.links[path] = "/" + member.linkname.removeprefix("./").lstrip("/")
        elif member.isfile():
            _take(archive, member, path, taken)
        target = taken.links.get(path, "")
        yield tree.Entry(path, mode, member.size, str(number), target)


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, taken: Taken) -> None:
    if KEPT.fullmatch(path) and member.size <= KEPT_LIMIT:
        taken.kept += member.size
        if taken.kept > KEPT_IN_ALL:
            raise ValueError(f"the records of its packages take more than {KEPT_IN_ALL} bytes")
        _save(archive, member, taken.root / path.lstrip("/"))
    elif SHARED.fullmatch(path) and member.size <= LIBRARY_LIMIT:
        with tempfile.TemporaryDirectory(dir=taken.root) as folder:
            file = Path(folder) / "library"
            _save(archive, member, file)
            _read_library(path, str(file), taken)
    elif leftovers.may_hold_secret(path, member.size) and (content := archive.extractfile(member)):
        taken.last = path, content.read()


def _read_library(path: str, file: str, taken: Taken) -> None:
    name = name_of(path)
    try:
        taken.shared[path] = elf.library(file)
    except (OSError, elf.NotElf):
        return
    if libraries.NCCL.fullmatch(name):
        taken.nccl[path] = libraries.about_nccl(file)
    elif libraries.PLUGIN.fullmatch(name):
        taken.plugins[path] = libraries.about_plugin(file)
    elif name.startswith("libibverbs.so"):
        taken.verbs[path] = elf.words(file, libraries.VERBS)


def _save(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(member)
    if content is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while data := content.read(CHUNK):
            file.write(data)


def _small(taken: Taken, path: str) -> bytes:
    """The content of the small file that has just come by."""
    return taken.last[1] if taken.last[0] == path else _kept(taken, path)[: leftovers.TEXT_LIMIT]


def _libraries(taken: Taken, files: dict[str, Any], subject: Subject) -> dict[str, Any]:
    """The same as the probe of that name, with the loader's part worked out here."""
    found = files["libraries"]
    tree_of = ReadOut(
        libraries={
            path: About(tuple(about["needed"]), tuple(about["rpath"]), tuple(about["runpath"]))
            for path, about in taken.shared.items()
        },
        links=taken.links,
        cache=cache(_kept(taken, "/etc/ld.so.cache")),
        library_path=tuple(filter(None, subject.environment.get("LD_LIBRARY_PATH", "").split(":"))),
    )
    asked_by = next(iter(sorted(taken.nccl)), "")
    named = [name_of(p) for p in found if libraries.PLUGIN.fullmatch(name_of(p))]
    resolved = {name: _resolved(tree_of, name, "") for name in libraries.ASKED}
    resolved |= {
        name: _resolved(tree_of, name, asked_by) for name in libraries.plugin_names(named, subject.environment)
    }
    closed = {r["file"] for r in resolved.values() if r["file"]} | set(taken.nccl) | set(taken.plugins)
    closed |= set(libraries.real_files(found, libraries.FABRIC))
    at = {str(taken.root / p.lstrip("/")): p for p in libraries.real_files(found, libraries.HEADER)}
    return {
        "nccl": taken.nccl,
        "plugins": taken.plugins,
        "headers": {at[path]: version for path, version in libraries.headers(list(at)).items()},
        "resolved": resolved,
        "closures": {path: _closure(tree_of, path) for path in sorted(closed)},
        "verbs_looks_for": taken.verbs,
        "method": METHOD,
    }


def _resolved(tree_of: ReadOut, name: str, asked_by: str) -> dict[str, str]:
    real = tree_of.find(name, asked_by)
    error = "" if real else f"{name}: not in {METHOD}, not in the default folders"
    return {"path": real, "file": real, "error": error}


def _closure(tree_of: ReadOut, path: str) -> dict[str, Any]:
    found, missing = tree_of.closure(path)
    return {"libraries": found, "missing": missing, "error": ""}


def _kept(taken: Taken, path: str) -> bytes:
    try:
        return (taken.root / path.lstrip("/")).read_bytes()
    except OSError:
        return b""


def _system(taken: Taken, subject: Subject) -> dict[str, Any]:
    return {
        "os": system.os_release(str(taken.root)),
        "machine": subject.platform.partition("/")[2],
        "kernel": "",
        "python": "",
        "python_path": "",
        "user": 0,
        "environment": subject.environment,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
