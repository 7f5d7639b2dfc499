"""The symbols and versions that an ELF library needs of others, and those that it offers them.

For images without Python. Where there is one, the image's own loader says what it would refuse.
"""

import contextlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdma_images.validate.probes import elf

DYNSYM = 11  # a section type, elf.h
WEAK_SYMBOL, LOCAL_SYMBOL = 2, 0
MAX_BYTES = 64 << 20  # bytes of a library all of whose symbols are read
# How those begin that are read of any library: NCCL's, and those of torch in c10, at and torch.
PREFIXES = (b"nccl", b"_ZN3c10", b"_ZNK3c10", b"_ZN2at", b"_ZNK2at", b"_ZN5torch", b"_ZNK5torch")
MAX_BEGINNING = max(map(len, PREFIXES))


@dataclass(frozen=True)
class Linking:
    """The symbols and symbol versions of a library; symbols are plain names.

    `needed_versions` are by the library that must define them, `defines` are its own versions. Unless it is complete,
    `undefined` and `defined` have the symbols with PREFIXES only.
    """

    needed_versions: Mapping[str, tuple[str, ...]]
    defines: frozenset[str]
    undefined: frozenset[str]
    defined: frozenset[str]
    is_complete: bool = True


def read_linking(path: str) -> Linking | None:
    """Return what the library at `path` asks and offers; None where it cannot be read."""
    with contextlib.suppress(OSError, elf.NotElf):
        return _linking(path, Path(path).stat().st_size)
    return None


def _linking(path: str, size: int) -> Linking:
    with elf.opened(path) as data:
        sections = elf.section_table(data, path)
        versions_by_library: dict[str, list[str]] = {}
        for library, version in elf.needed_versions(data, sections):
            versions_by_library.setdefault(library, []).append(version)
        defines = frozenset(elf.defined_versions(data, sections))
        symbols = list(_symbols(data, sections, (b"",) if size <= MAX_BYTES else PREFIXES))
    return Linking(
        {library: tuple(versions) for library, versions in versions_by_library.items()},
        defines,
        frozenset(name for name, defined, weak in symbols if not defined and not weak),
        frozenset(name for name, defined, _ in symbols if defined),
        size <= MAX_BYTES,
    )


def faults(path: str, paths: Mapping[str, str], linkings: Mapping[str, Linking]) -> list[str]:
    """Return what the loader would refuse of `path`, in glibc's words.

    `paths` are its libraries (name -> file). Every name that is needed must have been found. A library without any
    version satisfies every wish for one, as it does in glibc (elf/dl-version.c, match_symbol).
    """
    mapped = list(dict.fromkeys([path, *paths.values()]))
    problems = []
    for asker in mapped:
        for name, versions in linkings[asker].needed_versions.items() if asker in linkings else ():
            definer = linkings.get(paths.get(name, ""))
            if definer and definer.defines:
                missing = [version for version in versions if version not in definer.defines]
                problems += [f"{paths[name]}: version `{v}' not found (required by {asker})" for v in missing]
    return problems or _undefined(path, mapped, linkings)


def _undefined(path: str, mapped: list[str], linkings: Mapping[str, Linking]) -> list[str]:
    """Return the symbols of `path` that nothing defines.

    They are those with PREFIXES where not all of a library were read.
    """
    if not linkings.keys() >= set(mapped):
        return []
    readable = [linkings[file] for file in mapped]
    missing = readable[0].undefined.difference(*(linking.defined for linking in readable))
    beginnings = ("",) if all(linking.is_complete for linking in readable) else tuple(map(bytes.decode, PREFIXES))
    return [f"undefined symbol: {name} ({path})" for name in sorted(missing) if name.startswith(beginnings)]


def _symbols(data: Any, sections: list[elf.Section], beginnings: tuple[bytes, ...]) -> Iterator[tuple[str, bool, bool]]:
    """Yield (name, is defined here, is weak) of global symbols with `beginnings`."""
    for section in (section_ for section_ in sections if section_.kind == DYNSYM):
        strings = sections[section.link].offset
        for row in elf.row_range(section, elf.SYMBOL, elf.MAX_SYMBOLS):
            name, info, _, defined_in = struct.unpack_from("<IBBH", data, row)
            position = strings + name
            if name and info >> 4 != LOCAL_SYMBOL and data[position : position + MAX_BEGINNING].startswith(beginnings):
                yield elf.text(data, position), bool(defined_in), info >> 4 == WEAK_SYMBOL
