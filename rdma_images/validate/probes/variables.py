"""The environment variables that the image's own libraries read, by the names that are in them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rdma_images.validate.probes import elf, rootfs


class Readers(NamedTuple):
    """The files that read a prefix's variables, and how they have the names.

    They have them whole, or without the prefix. Names that a compiler may build from numbers, as NIXL's and UCX's,
    cannot be had so.
    """

    files: re.Pattern[str]
    names: re.Pattern[bytes]
    without_prefix: bool = False


TORCH = re.compile(r".*/libtorch_(?:cpu|cuda|python)\.so")
READERS = {
    "TORCH_NCCL_": Readers(TORCH, re.compile(rb"TORCH_NCCL_[A-Z0-9_]{2,60}(?=\0)")),
    "GLOO_": Readers(TORCH, re.compile(rb"GLOO_[A-Z0-9_]{2,60}(?=\0)")),
    "MC_": Readers(re.compile(r".*-packages/mooncake/[\w.-]+\.so"), re.compile(rb"MC_[A-Z0-9_]{2,60}(?=\0)")),
    "NVSHMEM_": Readers(
        re.compile(r".*/(?:libnvshmem_host|nvshmem_(?:transport|bootstrap)_\w+)\.so(?:\.[\d.]+)?"),
        re.compile(rb"(?<=\0)[A-Z][A-Z0-9_]{3,60}(?=\0)"),
        without_prefix=True,
    ),
}


def readable_names(root: rootfs.Root, paths: Iterable[str], environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the variables that libraries read, by each prefix that is set."""
    paths = list(paths)
    names_by_prefix = {}
    for prefix, readers in READERS.items():
        if not any(name.startswith(prefix) for name in environment):
            continue
        strings = functools.partial(_strings, pattern=readers.names)
        files = filter(readers.files.fullmatch, paths)
        names = {name for path in files for name in root.apply(strings, path)}
        if names:
            names_by_prefix[prefix] = sorted(prefix + name if readers.without_prefix else name for name in names)
    return names_by_prefix


def _strings(path: str, pattern: re.Pattern[bytes]) -> list[str]:
    try:
        return elf.find_strings(path, pattern)
    except (OSError, elf.NotElf):
        return []
