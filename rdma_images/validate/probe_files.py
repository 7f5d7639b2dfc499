"""Measure an image without Python: export its files and read them on this machine. Nothing of the image runs."""

import contextlib
import os
import posixpath
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from rdma_images.core import stream
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import PROJECT, PYTHON
from rdma_images.core.stream import CHUNK
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import Measured
from rdma_images.validate import transport
from rdma_images.validate.ldcache import ComputedLoader
from rdma_images.validate.probes import (
    conditions,
    leftovers,
    libraries,
    measure,
    packages,
    settings,
    system,
    tree,
)
from rdma_images.validate.probes.rootfs import SKIPPED, Root, RootEntry, renamed
from rdma_images.validate.run_probes import mark_lost, mark_stopped, parse_answers

READ_PATHS = re.compile(  # what probes read by its path
    r"/var/lib/dpkg/status(?:\.d/.+)?|/etc/ld\.so\.cache|/(?:etc|usr/lib)/os-release|.*\.dist-info/(?:METADATA|WHEEL)"
    r"|.*\.egg-info/PKG-INFO|.*/[\w.-]+-topo\.xml"
    r"|/opt/amazon/efa_installed_packages|/etc/(?:passwd|group)|.*/pyvenv\.cfg|" + settings.SETTINGS_PATHS.pattern
)
MAX_CONTENT_BYTES = 32 * CHUNK  # bytes of one file: more than a probe reads
MAX_CONTENTS_BYTES = 512 * CHUNK
MAX_SECRETS_BYTES = 128 * CHUNK  # of files that a link may lead to
MAX_LIBRARY_BYTES = 2048 * CHUNK
MAX_MEMORY_BYTES = 1024 * CHUNK  # bytes that reading may take
MAX_CPU_SECONDS = 600  # of processor time
FILE_TYPES = {
    tarfile.DIRTYPE: stat.S_IFDIR,
    tarfile.SYMTYPE: stat.S_IFLNK,
    tarfile.FIFOTYPE: stat.S_IFIFO,
    tarfile.CHRTYPE: stat.S_IFCHR,
    tarfile.BLKTYPE: stat.S_IFBLK,
}
FOLDER_MODE = stat.S_IFDIR | 0o755
EXPORT_PROBES = ("tree", "packages", "system", "settings")
SUBJECT_FILE, ANSWERS_FILE = "subject.json", "answers.json"


class Export(Root):
    """The files of an exported image, and what probes read of each as it comes by.

    A probe reads the beginning of files that READ_PATHS or variables name, and of small ones that may hold a setting;
    of a library it gets what libraries.READ return for the whole file.
    """

    def __init__(self, archive: tarfile.TarFile, folder: Path, named_paths: Iterable[str]) -> None:
        """Read the tar `archive`, with contents in `folder`.

        Files that variables name (`named_paths`) are also read.
        """
        super().__init__()
        self._archive, self._named = archive, frozenset(named_paths)
        self._library = folder / "library"  # the one that is read
        self._spool = (folder / "contents").open("w+b")
        self._entries: dict[str, RootEntry] = {}
        self._names: dict[str, list[str]] = {}
        self._contents: dict[str, tuple[int, int]] = {}  # offset and size in the spool by identity
        self._answers: dict[tuple[Callable[[str], Any], str], Any] = {}  # by what was read and identity
        self._last_secret = ("", b"")  # identity and content of the last file that may hold a secret
        self._named_bytes = self._secret_bytes = 0

    def entries(self, volumes: Iterable[str] = ()) -> Iterator[RootEntry]:
        """Yield every entry but what the engine adds, each when it comes by.

        What it has can be read from then on.
        """
        del volumes  # an export has one file system, and all of it comes by
        for number, member in enumerate(stream.members(self._archive)):
            path = "/" + member.name.removeprefix("./").strip("/")
            if path == "/" or any(path == folder or path.startswith(f"{folder}/") for folder in SKIPPED):
                continue
            entry = self._entry(path, member, str(number))
            self._add(entry)
            if member.isfile():
                self._read(member, entry)
            yield entry

    def entry(self, path: str) -> RootEntry | None:
        """Return as Root.entry; the parents of exported entries count as folders."""
        return self._entries.get(path) or (
            RootEntry(path, FOLDER_MODE, 0, "") if path == "/" or path in self._names else None
        )

    def names(self, folder: str) -> list[str]:
        """Return as Root.names."""
        return sorted(self._names.get(self.real(folder), ()))

    def start(self, path: str, size: int) -> bytes | None:
        """Return as Root.start, of files whose content is kept."""
        entry = self.behind(path)
        if not entry or not stat.S_ISREG(entry.mode):
            return None
        if entry.identity == self._last_secret[0]:
            return self._last_secret[1][:size]
        if entry.identity not in self._contents:
            return None
        offset, length = self._contents[entry.identity]
        self._spool.seek(offset)
        return self._spool.read(min(size, length))

    def apply(self, read: Callable[[str], Any], path: str) -> Any:
        """Return what `read` returned for the file as it came by, else for no file."""
        entry = self.behind(path)
        key = (read, entry.identity if entry else "")
        return self._answers[key] if key in self._answers else renamed(read(os.devnull), os.devnull, path)

    def _entry(self, path: str, member: tarfile.TarInfo, identity: str) -> RootEntry:
        if member.islnk():  # another name of a file that came before
            file = self._entries.get("/" + member.linkname.removeprefix("./").lstrip("/"))
            if file:
                return file._replace(path=path)
        mode = member.mode | FILE_TYPES.get(member.type, stat.S_IFREG)
        target = member.linkname if member.issym() else ""
        size = len(target.encode("utf-8", "replace")) if target else member.size
        return RootEntry(path, mode, size, identity, target, member.uid, member.gid)

    def _add(self, entry: RootEntry) -> None:
        self._entries[entry.path] = entry
        path = entry.path
        while path != "/":
            folder, name = posixpath.split(path)
            new = folder not in self._names
            self._names.setdefault(folder, []).append(name)
            if not new or folder in self._entries:
                break
            path = folder

    def _read(self, member: tarfile.TarInfo, entry: RootEntry) -> None:
        name = posixpath.basename(entry.path)
        reads = [read for read, names in libraries.READ.items() if names.fullmatch(name)]
        if tree.EXTENSION.fullmatch(entry.path):
            reads.append(libraries.linkage)
        may_hold_secret = leftovers.may_hold_secret(entry.path, member.size)
        if READ_PATHS.fullmatch(entry.path) or entry.path in self._named:
            self._named_bytes += self._keep(member, entry, MAX_CONTENT_BYTES)
            if self._named_bytes > MAX_CONTENTS_BYTES:
                raise ValueError(f"the records of its packages take more than {MAX_CONTENTS_BYTES} bytes")
        elif reads and member.size <= MAX_LIBRARY_BYTES:
            self._read_library(member, entry, reads)
        elif may_hold_secret and self._secret_bytes < MAX_SECRETS_BYTES:
            self._secret_bytes += self._keep(member, entry, leftovers.MAX_TEXT_BYTES)
        elif may_hold_secret:
            self._last_secret = entry.identity, self._content(member).read()
        elif ".so" in name or member.mode & 0o111 or not member.size:
            self._keep(member, entry, conditions.HEAD)

    def _read_library(self, member: tarfile.TarInfo, entry: RootEntry, reads: Iterable[Callable[[str], Any]]) -> None:
        with self._library.open("wb") as file:
            shutil.copyfileobj(self._content(member), file, CHUNK)
        for read in dict.fromkeys(reads):
            self._answers[read, entry.identity] = renamed(read(str(self._library)), str(self._library), entry.path)
        with self._library.open("rb") as file:
            self._save(entry, file.read(conditions.HEAD))

    def _keep(self, member: tarfile.TarInfo, entry: RootEntry, size: int) -> int:
        return self._save(entry, self._content(member).read(size))

    def _save(self, entry: RootEntry, content: bytes) -> int:
        self._contents[entry.identity] = (self._spool.seek(0, os.SEEK_END), len(content))
        self._spool.write(content)
        return len(content)

    def _content(self, member: tarfile.TarInfo) -> IO[bytes]:
        return cast(IO[bytes], self._archive.extractfile(member))


def read_out(export: Iterable[bytes], image_config: ImageConfig, memory: int = MAX_MEMORY_BYTES) -> Measured:
    """Return what files alone show: all but what `import torch` and tools would say.

    `export` is the tar of its file system. It is read in a process that may take only `memory` (bytes) and
    MAX_CPU_SECONDS, as files may have been made to take all there is; where that is too little, or the tar is damaged,
    everything is lost.
    """
    with tempfile.TemporaryDirectory(prefix="rdma-images-files-") as name:
        folder = Path(name)
        (folder / SUBJECT_FILE).write_text(image_config.model_dump_json(), encoding="utf-8")
        with (folder / "errors").open("wb") as errors:
            command = [*PYTHON, "-m", __name__, name, str(memory)]
            reading = subprocess.Popen(
                command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
            )
            with reading:
                _feed(export, cast(IO[bytes], reading.stdin))
        if reading.returncode == -signal.SIGXCPU:
            return mark_stopped(EXPORT_PROBES, f"was stopped: the files took more than {MAX_CPU_SECONDS} s to read")
        if reading.returncode:
            complaints = (folder / "errors").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            problem = complaints[-1] if complaints else f"reading them ended with {reading.returncode}"
            return mark_lost(EXPORT_PROBES, f"the image's files could not be read: {problem}")
        with (folder / ANSWERS_FILE).open("rb") as answers_file:
            return parse_answers(answers_file.read(transport.MAX_OUTPUT_BYTES), EXPORT_PROBES)


def _feed(export: Iterable[bytes], stdin: IO[bytes]) -> None:
    """Hand a tar over. Raises RdmaImagesError where the engine stops handing it out."""
    try:
        with contextlib.suppress(BrokenPipeError), stdin:  # who reads says itself why it reads no further
            for chunk in export:
                stdin.write(chunk)
    except OSError as error:
        raise RdmaImagesError(
            f"the engine stopped handing out the image's files: {error}\ntry again, and look into the engine's log"
        ) from None


def main(folder: Path, memory: int) -> None:
    """Read an image's tar from standard input, and write the probes' answers into `folder`."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
    image_config = ImageConfig.model_validate_json((folder / SUBJECT_FILE).read_bytes())
    (folder / ANSWERS_FILE).write_bytes(encoded_answers(sys.stdin.buffer, folder, image_config))


def encoded_answers(export: IO[bytes], folder: Path, image_config: ImageConfig) -> bytes:
    """Return what probes would print in the image whose tar is `export`.

    Its small files are kept in `folder`.
    """
    named_paths = [
        *(image_config.environment.get(name, "") for name in settings.FILE_NAMING_VARIABLES),
        *image_config.entrypoint,
    ]
    with tarfile.open(fileobj=export, mode="r|", bufsize=CHUNK) as archive:
        root = Export(archive, folder, named_paths)
        return measure.as_json({name: {"value": value} for name, value in measurements(root, image_config).items()})


def measurements(root: Root, image_config: ImageConfig) -> dict[str, Any]:
    """Return what the files of an image alone show, by probe."""
    environment = image_config.environment
    files = tree.summary(root.entries(), root)
    loaders = ComputedLoader(root, environment, image_config.machine)
    folders = packages.import_folders(root, environment)
    image_libraries = libraries.fabric_libraries(root, files["libraries"], environment, loaders, folders)
    return {
        "tree": {"files": files, "libraries": image_libraries},
        "packages": packages.installed_packages(root, folders),
        "system": system.system(root, environment, image_config.machine),
        "settings": settings.settings(root, environment, image_config.entrypoint, loaders),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
