"""Small ELF libraries with all that probes look at."""

import struct
from collections.abc import Iterable
from itertools import accumulate

HEADER, ROW, ALIGN = 64, 64, 8  # bytes
MACHINES = {"x86_64": 62, "aarch64": 183}
DT_NULL, DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH = 0, 1, 14, 15, 29
STRTAB, DYNAMIC, PROGBITS, DYNSYM = 3, 6, 1, 11
NAMES = ("", ".dynstr", ".dynsym", ".dynamic", ".rodata", ".nv_fatbin", ".shstrtab")
FUNCTION, TEXT = 0x11, 4  # what an exported symbol is, and the section that it is in


def library(
    *,
    soname: str = "",
    needed: Iterable[str] = (),
    exports: Iterable[str] = (),
    words: Iterable[str] = (),
    rpath: str = "",
    runpath: str = "",
    machine: str = "x86_64",
    bits: int = 64,
    codes: Iterable[int] = (),
) -> bytes:
    """Return a shared library of these names; `words` are the strings among its read-only data.

    Of a library of 32 `bits` only the header says so. `codes` are the numbers of the GPUs that it has code for, 90 of
    sm_90.
    """
    tags = [(DT_NEEDED, name) for name in needed]
    tags += [(tag, name) for tag, name in ((DT_SONAME, soname), (DT_RPATH, rpath), (DT_RUNPATH, runpath)) if name]
    symbols = list(exports)
    strings, offsets = _strings([*(name for _, name in tags), *symbols])
    contents = [
        b"",
        strings,
        bytes(24) + b"".join(struct.pack("<IBBHQQ", offsets[name], FUNCTION, 0, TEXT, HEADER, 8) for name in symbols),
        b"".join(struct.pack("<QQ", tag, offsets[name]) for tag, name in [*tags, (DT_NULL, "")]),
        b"\0" + b"".join(word.encode() + b"\0" for word in words),
        _gpu_code(codes),
    ]
    kinds = [(0, 0), (STRTAB, 0), (DYNSYM, 1), (DYNAMIC, 1), (PROGBITS, 0), (PROGBITS, 0)]
    return _file(contents, kinds, machine, bits)


def _file(contents: list[bytes], kinds: list[tuple[int, int]], machine: str, bits: int) -> bytes:
    """Return the file with these sections, each with its kind, link and name."""
    section_names, name_offsets = _strings(NAMES)
    padded = [content.ljust(-(-len(content) // ALIGN) * ALIGN, b"\0") for content in (*contents, section_names)]
    positions = [HEADER, *(HEADER + total for total in accumulate(map(len, padded)))]
    rows = [
        struct.pack("<IIQQQQIIQQ", name_offsets[name], kind, 2 * bool(kind), 0, offset, len(content), link, 0, ALIGN, 0)
        for name, (kind, link), offset, content in zip(
            NAMES, [*kinds, (STRTAB, 0)], positions, [*contents, section_names], strict=False
        )
    ]
    identity = b"\x7fELF" + bytes([bits // 32, 1, 1]).ljust(12, b"\0")
    numbers = (3, MACHINES[machine], 1, 0, 0, positions[-1], 0, HEADER, 0, 0, ROW, len(rows), len(NAMES) - 1)
    return identity + struct.pack("<HHIQQQIHHHHHH", *numbers) + b"".join(padded) + b"".join(rows)


def _gpu_code(codes: Iterable[int]) -> bytes:
    """Return a container of CUDA's compiler with an empty entry for each GPU, see probes/fatbin.py."""
    entries = b"".join(
        struct.pack("<HHIQ", 2, 0x101, 64, 0).ljust(28, b"\0") + struct.pack("<I", code) + bytes(32) for code in codes
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries if entries else b""


def _strings(names: Iterable[str]) -> tuple[bytes, dict[str, int]]:
    """Return a string table, and where each name begins in it."""
    table, offsets = b"\0", {"": 0}
    for name in names:
        if name not in offsets:
            offsets[name] = len(table)
            table += name.encode() + b"\0"
    return table, offsets
