"""The parts of an ELF file that say what a library needs, what it offers and what it looks for.

The file may have been made to do harm: it is mapped, never copied, and the limits on what is read of it are far above
what any real library has.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import struct
from collections.abc import Iterator
from re import Match, Pattern
from typing import Any, NamedTuple

SHT_DYNAMIC, SHT_DYNSYM = 6, 11
DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 14, 15, 29
HEADER = 64  # bytes of the file's own
DYNAMIC, SYMBOL = 16, 24  # bytes of a row
MAX_DYNAMIC = 4096  # rows: a library needs hundreds of others at most
MAX_SYMBOLS = 1 << 21  # rows: libtorch_cpu.so has some 100,000
MAX_WORDS = 1000  # distinct matches
MAX_NAME_BYTES = 8192  # bytes of a name or a search path
MACHINES = {62: "x86_64", 183: "aarch64"}


class NotElf(ValueError):
    """The file is no 64-bit little-endian ELF file with a section table."""


class Section(NamedTuple):
    """A section of the file: its name, type, and where its bytes are."""

    name: str
    kind: int
    offset: int
    size: int
    link: int


def library(path: str) -> dict[str, Any]:
    """Return machine, soname, needed, rpath and runpath of the library at `path`.

    Raises NotElf for anything else, OSError where it cannot be read.
    """
    with map_file(path) as data:
        sections = section_table(data, path)
        entries = [entry for section in _of_kind(sections, SHT_DYNAMIC) for entry in _dynamic(data, section, sections)]
        if not entries:
            raise NotElf("%s has no dynamic section" % path)
        machine = struct.unpack_from("<H", data, 18)[0]
    values = {kind: [value for tag, value in entries if tag == kind] for kind, _ in entries}
    return {
        "machine": MACHINES.get(machine, str(machine)),
        "soname": next(iter(values.get(DT_SONAME, [])), None),
        "needed": values.get(DT_NEEDED, []),
        "rpath": [p for value in values.get(DT_RPATH, []) for p in value.split(":")],
        "runpath": [p for value in values.get(DT_RUNPATH, []) for p in value.split(":")],
    }


def exported_symbols(path: str, pattern: Pattern[bytes]) -> list[str]:
    """Return the exported symbols of a library whose beginnings match `pattern`, sorted.

    Raises as `library` does.
    """
    with map_file(path) as data:
        sections = section_table(data, path)
        symbols: set[bytes] = set()
        for section in _of_kind(sections, SHT_DYNSYM):
            strings = sections[section.link].offset
            for offset in row_range(section, SYMBOL, MAX_SYMBOLS):
                name, _info, _other, defined_in = struct.unpack_from("<IBBH", data, offset)
                match = pattern.match(data, strings + name) if name and defined_in else None
                if match:
                    _keep(match, symbols)
    return sorted(name.decode("ascii", "replace") for name in symbols)


def find_strings(path: str, pattern: Pattern[bytes]) -> list[str]:
    """Return the distinct matches of `pattern` in an ELF file's read-only data, sorted.

    Where it has none, in its data: tcc puts constants there.
    Raises as `library` does.
    """
    matches: set[bytes] = set()
    with map_file(path) as data:
        parts = {section.name: section for section in section_table(data, path) if section.name in (".rodata", ".data")}
        for part in [parts[name] for name in (".rodata", ".data") if name in parts][:1]:
            for match in pattern.finditer(data, part.offset, part.offset + part.size):
                _keep(match, matches)
    return sorted(word.decode("ascii", "replace") for word in matches)


def numbers(names: list[str], prefix: str) -> list[int]:
    """Return the N of every `<prefix>N` among `names`, ascending."""
    matches = (re.fullmatch(re.escape(prefix) + r"(\d{1,9})", name) for name in names)
    return sorted({int(match.group(1)) for match in matches if match})


def interpreter(path: str) -> str | None:
    """Return the loader that the executable at `path` names; None for a static one.

    Raises as `library` does.
    """
    with map_file(path) as data:
        for section in section_table(data, path):
            if section.name == ".interp":
                return text(data, section.offset)
    return None


@contextlib.contextmanager
def map_file(path: str) -> Iterator[Any]:
    """Provide the file's bytes; a number that leads outside of them raises NotElf."""
    with open(path, "rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield data
        except NotElf:
            raise
        except (struct.error, ValueError, IndexError, OverflowError):
            raise NotElf("%s is empty, cut short or damaged" % path) from None


def section_table(data: Any, path: str) -> list[Section]:
    """Return the sections of the ELF file at `path`, mapped as `data`.

    Raises NotElf where it has none.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        raise NotElf("%s is no 64-bit ELF file" % path)
    start = struct.unpack_from("<Q", data, 40)[0]
    size, count, name_section_index = struct.unpack_from("<HHH", data, 58)
    if not start or not count:
        raise NotElf("%s has no section table" % path)
    rows = [struct.unpack_from("<IIQQQQI", data, start + i * size) for i in range(count)]
    names = rows[name_section_index][4]
    return [Section(_start_of_name(data, names + r[0]), r[1], r[4], r[5], r[6]) for r in rows]


def _of_kind(sections: list[Section], kind: int) -> list[Section]:
    """Return the section of a kind that a library has once."""
    return [section for section in sections if section.kind == kind][:1]


def row_range(section: Section, size: int, most: int) -> range:
    """Return where the rows of a table begin."""
    if section.size > size * most:
        raise ValueError("a table beyond measure")
    return range(section.offset, section.offset + section.size, size)


def _dynamic(data: Any, section: Section, sections: list[Section]) -> Iterator[tuple[int, str]]:
    strings = sections[section.link].offset
    for offset in row_range(section, DYNAMIC, MAX_DYNAMIC):
        tag, value = struct.unpack_from("<QQ", data, offset)
        if tag in (DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH):
            yield tag, text(data, strings + value)
        elif tag == 0:
            yield 0, ""
            return


def _keep(match: Match[bytes], matches: set[bytes]) -> None:
    if match.end() - match.start() > MAX_NAME_BYTES or len(matches) == MAX_WORDS:
        raise ValueError("names beyond measure")
    matches.add(match.group())


def _start_of_name(data: Any, offset: int) -> str:
    """Return a section's name, as much of it as distinguishes it from others."""
    return str(data[offset : offset + 16].split(b"\0", 1)[0].decode("utf-8", "replace"))


def text(data: Any, offset: int) -> str:
    """Return the text at `offset` up to its NUL. Raises ValueError for one without an end."""
    end = data.find(b"\0", offset, offset + MAX_NAME_BYTES)
    if end < 0:
        raise ValueError("a name without an end")
    return str(data[offset:end].decode("utf-8", "replace"))


def expand(folder: str, origin: str) -> str:
    """Return `folder` of a run path with $ORIGIN replaced by the folder of `origin`."""
    origin_folder = os.path.dirname(os.path.realpath(origin))
    return os.path.normpath(folder.replace("${ORIGIN}", origin_folder).replace("$ORIGIN", origin_folder))
