"""The parts of an ELF file that say what a library needs, what it offers and what it looks for."""

from __future__ import annotations

import mmap
import os
import re
import struct
from re import Pattern
from typing import Any, NamedTuple

SHT_DYNAMIC, SHT_DYNSYM = 6, 11
DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 14, 15, 29
MACHINES = {62: "x86_64", 183: "aarch64"}


class NotElf(ValueError):
    """The file is no 64-bit little-endian ELF file with a section table."""


class Section(NamedTuple):
    name: str
    kind: int
    offset: int
    size: int
    link: int


def library(path: str) -> dict[str, Any]:
    """What the library at `path` says of itself: machine, soname, needed, rpath, runpath, exported names.

    Raises NotElf for anything else, OSError where it cannot be read.
    """
    with open(path, "rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise NotElf("%s is empty" % path) from None
        with data:
            try:
                return _library(data, path)
            except (struct.error, IndexError, UnicodeDecodeError, OverflowError):
                raise NotElf("%s is cut short or damaged" % path) from None


def words(path: str, pattern: Pattern[bytes]) -> list[str]:
    """Every distinct match of `pattern` in the read-only data of the ELF file at `path`, sorted."""
    found: set[str] = set()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            parts = [s for s in _sections(data, path) if s.name == ".rodata"]
            for part in parts:
                text = data[part.offset : part.offset + part.size]
                found.update(match.group().decode("ascii", "replace") for match in pattern.finditer(text))
        except (struct.error, IndexError):
            raise NotElf("%s is cut short or damaged" % path) from None
    return sorted(found)


def numbers(names: list[str], prefix: str) -> list[int]:
    """The N of every `<prefix>N` among `names`, ascending."""
    found = (re.fullmatch(re.escape(prefix) + r"(\d+)", name) for name in names)
    return sorted({int(match.group(1)) for match in found if match})


def interpreter(path: str) -> str | None:
    """The program interpreter (the loader) that the executable at `path` names; None for a static one."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for section in _sections(data, path):
            if section.name == ".interp":
                return _text(data, section.offset)
    return None


def _library(data: Any, path: str) -> dict[str, Any]:
    sections = _sections(data, path)
    entries: list[tuple[int, str]] = []
    exported: list[str] = []
    for section in sections:
        if section.kind == SHT_DYNAMIC:
            entries = _dynamic(data, section, sections[section.link].offset)
        elif section.kind == SHT_DYNSYM:
            exported = _exported(data, section, sections[section.link].offset)
    if not entries:
        raise NotElf("%s has no dynamic section" % path)
    machine = struct.unpack_from("<H", data, 18)[0]
    of = {kind: [value for tag, value in entries if tag == kind] for kind, _ in entries}
    return {
        "machine": MACHINES.get(machine, str(machine)),
        "soname": next(iter(of.get(DT_SONAME, [])), None),
        "needed": of.get(DT_NEEDED, []),
        "rpath": [p for value in of.get(DT_RPATH, []) for p in value.split(":")],
        "runpath": [p for value in of.get(DT_RUNPATH, []) for p in value.split(":")],
        "exported": exported,
    }


def _sections(data: Any, path: str) -> list[Section]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise NotElf("%s is no 64-bit ELF file" % path)
    start = struct.unpack_from("<Q", data, 40)[0]
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    if not start or not count:
        raise NotElf("%s has no section table" % path)
    rows = [struct.unpack_from("<IIQQQQI", data, start + i * size) for i in range(count)]
    names = rows[names_at][4]
    return [Section(_text(data, names + r[0]), r[1], r[4], r[5], r[6]) for r in rows]


def _dynamic(data: Any, section: Section, strings: int) -> list[tuple[int, str]]:
    entries = []
    for offset in range(section.offset, section.offset + section.size, 16):
        tag, value = struct.unpack_from("<QQ", data, offset)
        if tag in (DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH):
            entries.append((tag, _text(data, strings + value)))
        elif tag == 0:
            entries.append((0, ""))
            break
    return entries


def _exported(data: Any, section: Section, strings: int) -> list[str]:
    names = []
    for offset in range(section.offset, section.offset + section.size, 24):
        name, _info, _other, defined_in = struct.unpack_from("<IBBH", data, offset)
        if name and defined_in:
            names.append(_text(data, strings + name))
    return names


def _text(data: Any, offset: int) -> str:
    end = data.find(b"\0", offset)
    return str(data[offset:end].decode("utf-8", "replace"))


def expand(folder: str, origin: str) -> str:
    """`folder` of an RPATH or RUNPATH with $ORIGIN replaced by the folder of the file `origin`."""
    here = os.path.dirname(os.path.realpath(origin))
    return os.path.normpath(folder.replace("${ORIGIN}", here).replace("$ORIGIN", here))
