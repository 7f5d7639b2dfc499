"""Measure an image without Python: export its files and read them on this machine. Nothing of the image runs."""

import contextlib
import re
import resource
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

from rdma_images.core import stream
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import PROJECT, PYTHON
from rdma_images.core.stream import CHUNK
from rdma_images.inspection.inspection import ImageConfig, base_name
from rdma_images.inspection.measurements import Measured
from rdma_images.validate import linking, transport
from rdma_images.validate.answers import lost, measured
from rdma_images.validate.ldcache import About, ReadOut, cache
from rdma_images.validate.probes import (
    conditions,
    elf,
    leftovers,
    libraries,
    measure,
    packages,
    pythons,
    settings,
    system,
    tree,
)

SHARED = re.compile(r".*\.so(\.[\w.]+)?")
KEPT = re.compile(  # small files that are read where they lie
    r"/var/lib/dpkg/status(?:\.d/.+)?|/etc/ld\.so\.cache|/(?:etc|usr/lib)/os-release|.*\.dist-info/METADATA|.*/nccl\.h"
    r"|.*/[\w.-]+-topo\.xml"
    r"|/opt/amazon/efa_installed_packages|/etc/(?:passwd|group)|.*/pyvenv\.cfg|"
    + settings.PLACES.pattern
    + "|"
    + settings.LAUNCHERS.pattern
)
KEPT_LIMIT = 32 * CHUNK
KEPT_IN_ALL = 512 * CHUNK
LIBRARY_LIMIT = 2048 * CHUNK
MEMORY = 1024 * CHUNK  # bytes that reading may take
SECONDS = 600  # of processor time
KINDS = {
    tarfile.DIRTYPE: stat.S_IFDIR,
    tarfile.SYMTYPE: stat.S_IFLNK,
    tarfile.REGTYPE: stat.S_IFREG,
    tarfile.FIFOTYPE: stat.S_IFIFO,
    tarfile.CHRTYPE: stat.S_IFCHR,
    tarfile.BLKTYPE: stat.S_IFBLK,
}
PROBES = ("tree", "packages", "system", "settings")
SUBJECT, ANSWERS = "subject.json", "answers.json"
METHOD = "the image's ld.so.cache, read out"


@dataclass
class ExportScan:
    """What is gathered while an image's files stream by."""

    root: Path  # where small files are kept, at their place in the image
    named: frozenset[str]  # further files to keep, which the image's variables name
    kept: int = 0  # bytes in them
    last: tuple[str, bytes] = ("", b"")  # path and content of the last file that was worth reading for a secret
    shared: dict[str, dict[str, Any]] = field(default_factory=dict)  # ELF libraries by path
    linkings: dict[str, linking.Linking] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)  # of what is no library of this machine
    files: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)
    nccl: dict[str, dict[str, Any]] = field(default_factory=dict)
    in_torch: dict[str, dict[str, Any]] = field(default_factory=dict)  # the NCCL that a libtorch_cuda has in itself
    plugins: dict[str, dict[str, Any]] = field(default_factory=dict)
    verbs: dict[str, list[str]] = field(default_factory=dict)
    libfabric: dict[str, str] = field(default_factory=dict)
    opens: dict[str, list[str]] = field(default_factory=dict)  # of libfabrics that open any


def read_out(export: Iterable[bytes], subject: ImageConfig, memory: int = MEMORY) -> Measured:
    """Return what the files of the image alone show: all but what `import torch` and the tools would say.

    `export` is the tar of its file system. It is read in a process that may take only `memory` (bytes) and SECONDS, as
    files may have been made to take all there is; where that is too little, or the tar is damaged, everything is lost.
    """
    with tempfile.TemporaryDirectory(prefix="rdma-images-readout-") as name:
        folder = Path(name)
        (folder / SUBJECT).write_text(subject.model_dump_json(), encoding="utf-8")
        with (folder / "errors").open("wb") as errors:
            command = [*PYTHON, "-m", __name__, name, str(memory)]
            reading = subprocess.Popen(
                command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
            )
            with reading:
                _feed(export, cast(IO[bytes], reading.stdin))
        if reading.returncode:
            complaints = (folder / "errors").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            why = complaints[-1] if complaints else f"reading them ended with {reading.returncode}"
            return lost(PROBES, f"the image's files could not be read: {why}")
        with (folder / ANSWERS).open("rb") as answers:
            return measured(answers.read(transport.MOST_BYTES), PROBES)


def _feed(export: Iterable[bytes], into: IO[bytes]) -> None:
    """Hand a tar over. Raises RdmaImagesError where the engine stops handing it out."""
    try:
        with contextlib.suppress(BrokenPipeError), into:  # who reads says itself why it reads no further
            for chunk in export:
                into.write(chunk)
    except OSError as error:
        raise RdmaImagesError(
            f"the engine stopped handing out the image's files: {error}\ntry again, and look into the engine's log"
        ) from None


def main(folder: Path, memory: int) -> None:
    """Read the tar on standard input, of an image whose subject is in `folder`; the answers are written there."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    subject = ImageConfig.model_validate_json((folder / SUBJECT).read_bytes())
    (folder / ANSWERS).write_bytes(answers(sys.stdin.buffer, folder, subject))


def answers(export: IO[bytes], folder: Path, subject: ImageConfig) -> bytes:
    """Return what the probes would print in the image whose tar is `export`; its small files are kept in `folder`."""
    named = [*(subject.environment.get(name, "") for name in settings.NAMING), *settings.scripts(subject.entrypoint)]
    taken = ExportScan(folder / "files", frozenset(named))
    taken.root.mkdir()
    with tarfile.open(fileobj=export, mode="r|", bufsize=CHUNK) as archive:
        entries = _entries(archive, taken, subject.machine)
        files = tree.summary(
            entries, lambda path: _small(taken, path), lambda: system.user(subject.user, str(taken.root))
        )
    return measure.as_json(
        {
            "tree": {"value": {"files": files, "libraries": _libraries(taken, files, subject)}},
            "packages": {"value": packages.installed_packages(str(taken.root))},
            "system": {"value": _system(taken, subject)},
            "settings": {"value": _settings(taken, subject)},
        }
    )


def _entries(archive: tarfile.TarFile, taken: ExportScan, machine: str) -> Iterator[tree.Entry]:
    """Yield every file of the archive as the tree's summary wants it; libraries are read as they come by."""
    for number, member in enumerate(stream.members(archive)):
        path = "/" + member.name.removeprefix("./").strip("/")
        mode = member.mode | KINDS.get(member.type, 0)
        if member.issym():
            taken.links[path] = member.linkname
        elif member.islnk():  # another name of a file that came before
            taken.links[path] = "/" + member.linkname.removeprefix("./").lstrip("/")
        elif member.isfile():
            taken.files.add(path)
            _take(archive, member, path, taken, machine)
        elif condition := conditions.of_mode(mode):
            taken.conditions[path] = condition
        target = taken.links.get(path, "")
        yield tree.Entry(path, mode, member.size, str(number), target, member.uid, member.gid)


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, taken: ExportScan, machine: str) -> None:
    if (KEPT.fullmatch(path) or path in taken.named) and member.size <= KEPT_LIMIT:
        taken.kept += member.size
        if taken.kept > KEPT_IN_ALL:
            raise ValueError(f"the records of its packages take more than {KEPT_IN_ALL} bytes")
        _save(archive, member, taken.root / path.lstrip("/"))
    elif (SHARED.fullmatch(path) or tree.EXTENSION.fullmatch(path)) and member.size <= LIBRARY_LIMIT:
        file = taken.root.with_name("library")  # beside the root, where no path of the image leads
        _save(archive, member, file)
        if condition := conditions.of_path(str(file), machine):
            taken.conditions[path] = condition
        _read_library(path, str(file), taken)
        file.unlink()
    elif leftovers.may_hold_secret(path, member.size) and (content := archive.extractfile(member)):
        taken.last = path, content.read()


def _read_library(path: str, file: str, taken: ExportScan) -> None:
    name = base_name(path)
    with contextlib.suppress(OSError, elf.NotElf):
        taken.shared[path] = elf.library(file)
        taken.linkings[path] = linking.linking_of(file, Path(file).stat().st_size)
    if libraries.NCCL.fullmatch(name):
        taken.nccl[path] = libraries.about_nccl(file)
    elif libraries.TORCH_CUDA.fullmatch(name) and not libraries.needs_nccl(file):
        taken.in_torch[path] = libraries.about_nccl(file)
    elif libraries.PLUGIN.fullmatch(name):
        taken.plugins[path] = libraries.about_plugin(file)
    elif name.startswith("libibverbs.so"):
        taken.verbs[path] = _words(file, libraries.VERBS)
    elif libraries.LIBFABRIC.fullmatch(name):
        taken.libfabric[path] = libraries.libfabric_version(file)
        taken.opens |= {path: names} if (names := libraries.libfabric_opens(file)) else {}


def _words(file: str, pattern: re.Pattern[bytes]) -> list[str]:
    try:
        return elf.words(file, pattern)
    except (OSError, elf.NotElf):
        return []


def _save(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(member)
    if content is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while data := content.read(CHUNK):
            file.write(data)


def _small(taken: ExportScan, path: str) -> bytes:
    """Return the content of the small file that has just come by."""
    return taken.last[1] if taken.last[0] == path else _file_content(taken, path)[: leftovers.TEXT_LIMIT]


def _libraries(taken: ExportScan, files: dict[str, Any], subject: ImageConfig) -> dict[str, Any]:
    """Return the same as the probe of that name, with the loader's part worked out here."""
    found = files["libraries"]
    taken.nccl = taken.nccl or {path: about for path, about in taken.in_torch.items() if about.get("banner")}
    tree_of = _read_out(taken, subject)
    for path, about in found.items():
        about["condition"] = _condition(tree_of, taken, path) if ".so" in base_name(path) else ""
    for read in (taken.nccl, taken.plugins):
        read.update({path: {"error": found[path]["condition"]} for path in read if found[path]["condition"]})
    asked_by = next(iter(sorted(path for path, about in taken.nccl.items() if not about["error"])), "")
    named = [base_name(p) for p in found if libraries.PLUGIN.fullmatch(base_name(p))]
    resolved = {name: _resolved(tree_of, name, "") for name in libraries.ASKED}
    resolved |= {
        name: _resolved(tree_of, name, asked_by) for name in libraries.plugin_names(named, subject.environment)
    }
    opening = {name: path for path, about in taken.plugins.items() for name in about.get("opens", ())}
    closed = {r["file"] for r in resolved.values() if r["file"]} | set(taken.nccl) | set(taken.plugins)
    resolved |= {name: _resolved(tree_of, name, path) for name, path in opening.items()}
    closed |= {path for path in taken.shared if "/torch/lib/" in path and base_name(path) in libraries.TORCH}
    opens = {path: [n for n in names if not tree_of.find(n, path)] for path, names in taken.opens.items()}
    opened = (libraries.FABRIC, libraries.PROVIDER)
    closed |= set(libraries.transports(found)) | {path for name in opened for path in libraries.real_files(found, name)}
    preloaded = _preloads(taken, subject)
    resolved |= {word: _resolved(tree_of, word, "") for word in preloaded}
    closed |= {file for word in preloaded if (file := resolved[word]["file"])}
    closed |= set(libraries.modules(found, lambda path: taken.shared.get(path, {"needed": []})["needed"]))
    topologies = [path for about in taken.plugins.values() for path in about.get("topologies", ())]
    at = {str(taken.root / p.lstrip("/")): p for p in libraries.real_files(found, libraries.HEADER)}
    return {
        "nccl": taken.nccl,
        "plugins": taken.plugins,
        "headers": {at[path]: version for path, version in libraries.headers(list(at)).items()},
        "resolved": resolved,
        "closures": {path: _closure(tree_of, path, taken.linkings) for path in sorted(closed)},
        "verbs_looks_for": taken.verbs,
        "libfabric": taken.libfabric,
        "opens": {path: names for path, names in opens.items() if names},
        "topologies": libraries.topology_faults(topologies, lambda path: _text(tree_of, taken, path)),
        "method": METHOD,
    }


def _read_out(taken: ExportScan, subject: ImageConfig, library_path: str | None = None) -> ReadOut:
    """Return what decides what the loader finds; `library_path` takes the place of the image's LD_LIBRARY_PATH."""
    folders = subject.environment.get("LD_LIBRARY_PATH", "") if library_path is None else library_path
    image_files = ReadOut(
        libraries={
            path: About(tuple(about["needed"]), tuple(about["rpath"]), tuple(about["runpath"]))
            for path, about in taken.shared.items()
        },
        links=taken.links,
        conditions=taken.conditions,
        cache=cache(_file_content(taken, "/etc/ld.so.cache")),
        library_path=tuple(filter(None, folders.split(":"))),
    )
    files = [file for word in _preloads(taken, subject) if (file := image_files.find(word)) in taken.shared]
    return replace(
        image_files, preloaded={taken.shared[file]["soname"] or base_name(file): file for file in files[::-1]}
    )


def _preloads(taken: ExportScan, subject: ImageConfig) -> list[str]:
    """Return what the loader maps before all else, by path or name: LD_PRELOAD, then /etc/ld.so.preload.

    See ld.so(8).
    """
    lines = _file_content(taken, settings.OF_LOADER).decode("utf-8", "replace").splitlines()
    words = re.split(r"[:\s]+", subject.environment.get("LD_PRELOAD", ""))
    words += [word for line in lines for word in re.split(r"[:\s]+", line.partition("#")[0])]
    return list(dict.fromkeys(filter(None, words)))


def _settings(taken: ExportScan, subject: ImageConfig) -> dict[str, Any]:
    """Return the same as the probe of that name."""
    environment, without = subject.environment, _read_out(taken, subject, "")
    paths = sorted(path for path in taken.files if settings.PLACES.fullmatch(path) or path in taken.named)
    texts = [(path, _file_content(taken, path).decode("utf-8", "replace")) for path in paths]
    texts += [(settings.ENTRY, line) for line in settings.shell_lines(subject.entrypoint)]
    assignments = settings.assigned([text for text in texts if not text[1].startswith(settings.PROGRAM)], environment)
    starting = sorted(path for path in taken.files if settings.LAUNCHERS.fullmatch(path) and path not in paths)
    started = [
        (path, _file_content(taken, path).decode("utf-8", "replace")) for path in starting[: settings.MOST_SCRIPTS]
    ]

    def there(path: str) -> bool:
        real = without.real(path)
        return real in taken.files or any(file.startswith(f"{real}/") for file in taken.files)

    return {
        "assigned": assignments + settings.assigned(started, environment, "launcher"),
        "absent": settings.absent(environment, assignments, there),
        "pythons": []
        if pythons.activated(settings.of_shells(texts), subject.entrypoint)
        else _pythons(environment.get("PATH", ""), taken, without),
        "without_path": {
            name: without.find(name) for name in settings.loader_names(environment) if name != "libcuda.so.1"
        }
        if environment.get("LD_LIBRARY_PATH")
        else {},
    }


def _pythons(path: str, taken: ExportScan, tree_of: ReadOut) -> list[dict[str, Any]]:
    """Return the Pythons on PATH, see pythons.on_path."""
    cut = (file.partition("-packages/") for file in taken.files)
    folders = sorted({f"{before}-packages" for before, inside, _ in cut if inside})
    of_tree = pythons.Tree(
        tree_of.real,
        lambda file: tree_of.real(file) in taken.files,
        lambda file: _file_content(taken, file).decode("utf-8", "replace"),
        lambda prefix: [folder for folder in folders if folder.startswith(f"{prefix}/lib")],
    )
    return pythons.on_path(path, of_tree)


def _condition(tree_of: ReadOut, taken: ExportScan, path: str) -> str:
    real = tree_of.real(path)
    if real in taken.files or real in taken.conditions:
        return taken.conditions.get(real, "")
    return "loop" if real in taken.links else "dangling"


def _resolved(tree_of: ReadOut, name: str, asked_by: str) -> dict[str, str]:
    path = tree_of.path(name, asked_by)
    real = tree_of.find(name, asked_by)
    why = tree_of.refused(real)
    if not real:
        return {"path": "", "file": "", "error": f"{name}: not in {METHOD}, not in the default folders"}
    return {"path": path, "file": real, "error": f"{path}: {why}" if why else ""}


def _closure(tree_of: ReadOut, path: str, linkings: dict[str, linking.Linking]) -> dict[str, Any]:
    paths, missing = tree_of.closure(path)
    faults = [f"{path}: {why}"] if (why := tree_of.refused(path)) else []
    faults += [f"{file}: {why} (required by {path})" for file in paths.values() if (why := tree_of.refused(file))]
    if not faults and not missing:
        faults = linking.faults(path, paths, linkings)
    return {"libraries": paths, "missing": missing, "faults": faults, "error": ""}


def _text(tree_of: ReadOut, taken: ExportScan, path: str) -> str | None:
    """Return what is in a small file, with links followed; None where there is none."""
    real = tree_of.real(path)
    return _file_content(taken, real).decode("utf-8", "replace") if real in taken.files else None


def _file_content(taken: ExportScan, path: str) -> bytes:
    try:
        return (taken.root / path.lstrip("/")).read_bytes()
    except OSError:
        return b""


def _system(taken: ExportScan, subject: ImageConfig) -> dict[str, Any]:
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
