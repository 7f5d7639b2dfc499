"""The files that an installer would write for a wheel, without unpacking it.

PyPA's `installer` decides where each file of the wheel goes; contents stay in the wheel until they are copied.
"""

import base64
import binascii
import hashlib
import io
import struct
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Literal

import installer
from installer.destinations import WheelDestination
from installer.exceptions import InstallerError
from installer.records import Hash, RecordEntry, parse_record_file
from installer.scripts import Script
from installer.sources import WheelFile
from installer.utils import Scheme, construct_record_file, fix_shebang

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.sizes import format_bytes
from rdma_images.layers.recipe import PREFIX

SITE = f"{PREFIX}/site-packages"
PYTHON = "/opt/venv/bin/python"
# Python finds site-packages as lib/python3.x/site-packages, a link to it, and RECORD's paths are relative to that name.
ABOVE_SITE = "../../.."
FOLDERS = {"purelib": SITE, "platlib": SITE, "scripts": f"{PREFIX}/bin", "data": PREFIX, "headers": f"{PREFIX}/include"}
METADATA = {"INSTALLER": b"rdma-images", "REQUESTED": b""}
SHEBANG = b"#!python"  # what an installer replaces, by the wheel's specification

# A wheel of torch's closure unpacks to 10 times its size at most (cuda-toolkit: texts of 2.6 kB), and deflate makes at
# most 1,032 bytes of one. What lies between is a mistake or an attack on the disk.
MAX_RATIO = 100
# What zipfile raises for a damaged archive.
_DAMAGE = (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, OverflowError, zlib.error, struct.error)

ALGORITHMS = ("sha256", "sha384", "sha512")  # that a RECORD may have, by the wheel's specification

PIECE = 1 << 20  # bytes that are read at once

DevelFileMatcher = Callable[[str], object]  # whether a path of RECORD is only for building software


class WheelError(RdmaImagesError):
    """A wheel that is what the lock says, and still cannot be installed."""


class WrongRecordError(WheelError):
    """A wheel whose RECORD has another digest of a file than the file has, as if it was patched after packing."""

    wheel = Path()


@dataclass(frozen=True)
class LayerMember:
    """One file of a layer. `path` has no slash at its start; `size` in bytes.

    Its content is `content`, or where that is None the wheel's `member`, whose digest is `algorithm` and `digest`.
    """

    path: str
    executable: bool
    size: int
    algorithm: str
    digest: str  # in hexadecimal
    wheel: Path
    member: str = ""
    content: bytes | None = None


@dataclass(frozen=True)
class WheelMembers:
    """A wheel's files by path: for runtime images, and what devel images add."""

    runtime: tuple[LayerMember, ...]
    devel: tuple[LayerMember, ...]


def layer_members(wheel: Path, size: int, is_devel: DevelFileMatcher, rehash: bool = False) -> WheelMembers:
    """Return the files of `wheel`, which has `size` bytes by its lock.

    Raises WheelError for a wheel that is damaged, or that no installer should unpack. Contents are compared with
    RECORD by `chunks`, when they are copied; with `rehash` they are read here, and the new RECORD has their own
    digests.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            _check(archive, wheel, size)
            source = WheelFile(archive)
            source.validate_record(validate_contents=False)
            records = _records(source, wheel)
            destination = _Destination(wheel, archive, _digests(archive, records) if rehash else records)
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of __pycache__, left out
                installer.install(source, destination, METADATA)
    except WheelFile.validation_error as error:
        issues = getattr(error, "issues", None) or [str(error)]
        raise wheel_error(wheel, f"its RECORD and its files differ: {issues[0]}") from None
    except (InstallerError, *_DAMAGE, RuntimeError, AssertionError, KeyError) as error:
        raise wheel_error(wheel, str(error) or "it is not the archive of a wheel") from None
    return _split(destination, is_devel)


def chunks(entry: LayerMember, archive: zipfile.ZipFile, length: int) -> Iterator[bytes]:
    """Yield the content of an entry in pieces of `length` bytes, the last one perhaps shorter.

    Raises WheelError for a damaged one, WrongRecordError where RECORD says otherwise.
    """
    if entry.content is not None:
        yield from (entry.content[begin : begin + length] for begin in range(0, entry.size, length))
        return
    hasher, count = hashlib.new(entry.algorithm), 0
    try:
        with archive.open(entry.member) as stream:
            while chunk := stream.read(length):
                hasher.update(chunk)
                count += len(chunk)
                yield chunk
    except _DAMAGE as error:
        raise wheel_error(entry.wheel, f"{entry.member} cannot be read: {error}") from None
    if count != entry.size or hasher.hexdigest() != entry.digest:
        misstated = WrongRecordError(str(wheel_error(entry.wheel, f"{entry.member} is not what its RECORD says")))
        misstated.wheel = entry.wheel
        raise misstated


def wheel_error(wheel: Path, problem: str) -> WheelError:
    """Return the error for a wheel that no layer can be made from."""
    return WheelError(f"{wheel.name}: {problem}\nchoose another version of the package, and tell its publishers")


@dataclass
class _Destination(WheelDestination):
    """Takes what `installer` would write, and writes nothing."""

    wheel: Path
    archive: zipfile.ZipFile
    records: dict[str, tuple[str, str]]  # member -> algorithm, and digest in hexadecimal
    entries: dict[str, LayerMember] = field(default_factory=dict)  # by their names in RECORD
    rows: list[RecordEntry] = field(default_factory=list)
    record: str = ""  # RECORD's name in itself

    def write_script(self, name: str, module: str, attr: str, section: str) -> RecordEntry:
        """Return a program that an entry point asks for."""
        kind: Literal["gui", "console"] = "gui" if section == "gui" else "console"
        name, content = Script(name, module, attr, kind).generate(PYTHON, "posix")
        return self._add(Scheme("scripts"), name, self._new_entry(content, executable=True))

    def write_file(
        self, scheme: Scheme, path: str | PathLike[str], stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        """Return a file of the wheel, or one of METADATA."""
        path, member = str(path), getattr(stream, "name", "")
        if not member:
            return self._add(scheme, path, self._new_entry(stream.read(), is_executable))
        algorithm, digest = self.records[member]
        size = self.archive.getinfo(member).file_size
        entry = LayerMember("", is_executable or scheme == "scripts", size, algorithm, digest, self.wheel, member)
        if scheme == "scripts" and stream.read(len(SHEBANG)) == SHEBANG:
            text = b"".join(chunks(entry, self.archive, size + 1))
            with fix_shebang(io.BytesIO(text), PYTHON) as fixed:
                entry = self._new_entry(fixed.read(), executable=True)
        return self._add(scheme, path, entry)

    def finalize_installation(
        self, scheme: Scheme, record_file_path: str, records: Iterable[tuple[Scheme, RecordEntry]]
    ) -> None:
        """Note where RECORD is, and its rows; `listing` makes its content later."""
        self.rows = [row for _, row in records]
        self.record = record_file_path
        self._add(scheme, record_file_path, self._new_entry(b"", executable=False))

    def listing(self, excluded: Collection[str]) -> LayerMember:
        """Return RECORD without the rows of the `excluded` names."""
        rows = [(Scheme(""), row) for row in self.rows if row.path not in excluded]
        with construct_record_file(rows) as stream:
            return replace(self._new_entry(stream.read(), executable=False), path=self.entries[self.record].path)

    def _add(self, scheme: Scheme, path: str, entry: LayerMember) -> RecordEntry:
        path_below = self._path_below_root(scheme, path)
        inside = path_below.removeprefix(f"{SITE}/")
        name = inside if inside != path_below else f"{ABOVE_SITE}/{path_below.removeprefix(f'{PREFIX}/')}"
        if name in self.entries:
            raise wheel_error(self.wheel, f"it brings {path_below} twice")
        self.entries[name] = replace(entry, path=path_below)
        value = base64.urlsafe_b64encode(bytes.fromhex(entry.digest)).decode().rstrip("=")
        return RecordEntry(name, Hash(entry.algorithm, value), entry.size)

    def _path_below_root(self, scheme: Scheme, path: str) -> str:
        """Return a file's path below the root. Raises WheelError outside of it."""
        _check_path(path, self.wheel)
        folder = FOLDERS[scheme]
        if scheme == "headers":
            folder += f"/{self.wheel.name.partition('-')[0]}"
        return f"{folder}/{path}"

    def _new_entry(self, content: bytes, executable: bool) -> LayerMember:
        digest = hashlib.sha256(content).hexdigest()
        return LayerMember("", executable, len(content), "sha256", digest, self.wheel, content=content)


def _check(archive: zipfile.ZipFile, wheel: Path, size: int) -> None:
    """Raise WheelError for an archive that is not to be unpacked, by its table of contents."""
    members = archive.infolist()
    for member in members:
        _check_path(member.filename.removesuffix("/"), wheel)
        if not 0 <= member.header_offset < size:
            raise wheel_error(wheel, f"its table has {member.filename} outside the archive")
    repeated = [name for name, count in Counter(member.filename for member in members).items() if count > 1]
    if repeated:
        raise wheel_error(wheel, f"it brings {repeated[0]} twice")
    unpacked = sum(member.file_size for member in members)
    if unpacked > size * MAX_RATIO:
        raise wheel_error(
            wheel, f"{format_bytes(size)} would unpack to {format_bytes(unpacked)}, more than {MAX_RATIO} times as much"
        )


def _check_path(path: str, wheel: Path) -> None:
    """Raise WheelError for a path that would not lie below the folder that it is relative to."""
    parts = path.split("/")
    if not all(parts) or {".", ".."} & set(parts) or not path.isprintable() or "\\" in path:
        raise wheel_error(wheel, f"it brings {path!r}, which leads out of the environment")


def _records(source: WheelFile, wheel: Path) -> dict[str, tuple[str, str]]:
    """Return what RECORD says of each member's content."""
    rows = {}
    for path, value, _ in parse_record_file(source.read_dist_info("RECORD").splitlines()):
        algorithm, _, digest = value.partition("=")
        try:
            rows[path] = algorithm, base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
        except binascii.Error:
            raise wheel_error(wheel, f"its RECORD has no digest of {path}, but {value!r}") from None
        if algorithm and algorithm not in ALGORITHMS:
            raise wheel_error(wheel, f"its RECORD has {algorithm} of {path}; known are {', '.join(ALGORITHMS)}")
    return rows


def _digests(archive: zipfile.ZipFile, records: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return the digests that the members of `records` have, as RECORD should say it."""
    digests = dict(records)
    for member, (algorithm, _) in records.items():
        if algorithm:
            hasher = hashlib.new(algorithm)
            with archive.open(member) as stream:
                while piece := stream.read(PIECE):
                    hasher.update(piece)
            digests[member] = algorithm, hasher.hexdigest()
    return digests


def _split(destination: _Destination, is_devel: DevelFileMatcher) -> WheelMembers:
    """Return the runtime and devel trees, each with its own RECORD."""
    devel_paths = {name for name in destination.entries if is_devel(name)}
    kept_entries = [
        entry for name, entry in destination.entries.items() if name not in devel_paths and name != destination.record
    ]
    devel = [*(destination.entries[name] for name in devel_paths), destination.listing(())] if devel_paths else []
    return WheelMembers(_in_order([*kept_entries, destination.listing(devel_paths)]), _in_order(devel))


def _in_order(entries: Iterable[LayerMember]) -> tuple[LayerMember, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.path))
