"""Measure an image without Python: unpack its files and read them on this machine. Nothing of the image runs."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from rdma_images.core import stream
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import PROJECT, PYTHON, state_folder
from rdma_images.core.stream import CHUNK
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import Measured
from rdma_images.validate import transport
from rdma_images.validate.computed_loader import ComputedLoader
from rdma_images.validate.probes import libraries, measure, packages, settings, system, tree
from rdma_images.validate.probes.rootfs import SKIPPED, Root
from rdma_images.validate.run_probes import mark_failed, mark_timed_out, parse_answers

MAX_CONTENT_BYTES = 32 * CHUNK  # bytes of a file that is neither library nor program: more than a probe reads
MAX_MEMORY_BYTES = 1024 * CHUNK  # bytes that reading may take
MAX_CPU_SECONDS = 600  # of processor time
EXPORT_PROBES = ("tree", "packages", "system", "settings")
SUBJECT_FILE, ANSWERS_FILE = "subject.json", "answers.json"


def measure_export(export: Iterable[bytes], image_config: ImageConfig, memory: int = MAX_MEMORY_BYTES) -> Measured:
    """Return what files alone show: all but what `import torch` and tools would say.

    `export` is the tar of its file system. It is read in a process that may take only `memory` (bytes) and
    MAX_CPU_SECONDS, as files may have been made to take all there is; where that is too little, or the tar is damaged,
    everything is lost.
    """
    (scratch := state_folder() / "unpacked").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as name:
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
            return mark_timed_out(EXPORT_PROBES, f"was stopped: the files took more than {MAX_CPU_SECONDS} s to read")
        if reading.returncode:
            complaints = (folder / "errors").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            problem = complaints[-1] if complaints else f"reading them ended with {reading.returncode}"
            return mark_failed(EXPORT_PROBES, f"the image's files could not be read: {problem}")
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
    """Return what probes would print in the image whose tar is `export`, which is unpacked into `folder`."""
    unpack(export, folder / "files")
    values = measurements(Root(str(folder / "files")), image_config)
    return measure.as_json({name: {"value": value} for name, value in values.items()})


def unpack(export: IO[bytes], folder: Path) -> None:
    """Write the files of a tar below the new `folder`, all as this user's own.

    A large file that is neither library nor program ends in a hole; a device becomes a pipe. Raises ReadError where a
    name or a link leads out of the folder, OSError where the files cannot be written.
    """
    folder.mkdir()
    made: set[Path] = set()  # folders, in which no link leads out
    with tarfile.open(fileobj=export, mode="r|", bufsize=CHUNK) as archive:
        for member in stream.members(archive):
            highest = PurePosixPath("/", member.name).parts[1:2]
            if not highest or f"/{highest[0]}" in SKIPPED:
                continue
            path = folder / member.name.lstrip("/")
            if path.parent not in made:
                _require_inside(folder, path)
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            if member.isdir():
                path.mkdir(exist_ok=True)
            elif member.issym():
                path.symlink_to(member.linkname)
            elif member.islnk():
                earlier = folder / member.linkname.lstrip("/")
                _require_inside(folder, earlier)
                os.link(earlier, path, follow_symlinks=False)
            elif member.isfile():
                _write(member, cast(IO[bytes], archive.extractfile(member)), path)
            else:
                os.mkfifo(path)


def _require_inside(folder: Path, path: Path) -> None:
    """Raise ReadError where the way to `path` leads out of `folder`."""
    if ".." in path.parts or not path.parent.resolve().is_relative_to(folder.resolve()):
        raise tarfile.ReadError(f"a damaged tar: {str(path.relative_to(folder))!r} leads out of the tree")


def _write(member: tarfile.TarInfo, content: IO[bytes], path: Path) -> None:
    """Write a file, as far as a probe reads it, and with its size."""
    is_code = ".so" in path.name or member.mode & 0o111
    remaining = member.size if is_code else min(member.size, MAX_CONTENT_BYTES)
    with path.open("wb") as file:
        while remaining and (chunk := content.read(min(remaining, CHUNK))):
            remaining -= file.write(chunk)
        file.truncate(member.size)


def measurements(root: Root, image_config: ImageConfig) -> dict[str, Any]:
    """Return what the files of an image alone show, by probe."""
    environment = image_config.environment
    files = tree.summary(root.entries())
    loaders = ComputedLoader(root, environment, image_config.machine)
    folders = packages.import_folders(root, environment)
    image_libraries = libraries.fabric_libraries(root, files["library_files"], environment, loaders, folders)
    return {
        "tree": {"files": files, "libraries": image_libraries},
        "packages": packages.installed_packages(root, folders),
        "system": system.measure_system(root, environment, image_config.machine),
        "settings": settings.measure_settings(root, environment, image_config.entrypoint, loaders),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
