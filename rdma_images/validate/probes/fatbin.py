"""The GPUs for which a program has code, from the section in which CUDA's compiler puts it.

The layout is what nvcc 13.0.88 writes: containers, each a header (magic, version, size of the header, size of the rest)
and entries (kind, flags, size of the header, size, and 28 bytes in the architecture's number).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from rdma_images.validate.probes import elf

SECTION = ".nv_fatbin"
MAGIC = 0xBA55ED50
PTX, REAL = 1, 2
MAX_ENTRIES = 100_000  # entries; a program of nccl-tests has some 100


def architectures(path: str) -> list[str]:
    """Return what a program has code for: "sm_90" real code, "compute_90" PTX.

    Raises NotElf if it is damaged or no program, OSError if it cannot be read.
    """
    entries: set[tuple[int, str]] = set()
    with elf.map_file(path) as data:
        for section in elf.section_table(data, path):
            if section.name == SECTION:
                entries.update(_codes(data, section.offset, section.offset + section.size))
    return [name for _, name in sorted(entries)]


def _codes(data: Any, offset: int, end: int) -> Iterator[tuple[int, str]]:
    """Yield number and name of each entry; containers follow each other, padded with zeros."""
    for _ in range(MAX_ENTRIES):
        while offset + 16 <= end and struct.unpack_from("<I", data, offset)[0] != MAGIC:
            offset += 8
        if offset + 16 > end:
            return
        _, _, header, size = struct.unpack_from("<IHHQ", data, offset)
        offset, last = offset + header, offset + header + size
        if not header or last > end:
            raise ValueError("a container that is cut short")
        while offset < last:
            kind, _, entry, length = struct.unpack_from("<HHIQ", data, offset)
            number = struct.unpack_from("<I", data, offset + 28)[0]
            if kind in (PTX, REAL):
                yield number, "%s_%d" % ("sm" if kind == REAL else "compute", number)
            if entry + length == 0:
                raise ValueError("an entry without a size")
            offset += entry + length
    raise ValueError("more code than any program has")
