"""Read the names of environment variables from the source trees of the libraries that read them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rdma_images.core.errors import RefusedError, near
from rdma_images.facts import aws_ofi_nccl
from rdma_images.facts.variables import Variables

SUFFIXES = (".c", ".cc", ".cpp", ".cu", ".h", ".hpp")


class Reader(NamedTuple):
    """How a library reads a variable: a folder below its tree, and a pattern whose group is the rest of the name."""

    folder: str
    pattern: re.Pattern[str]
    prefix: str = ""


def _called(*functions: str, name: str = r"[A-Z][A-Z0-9_]+") -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(functions)})\s*\(\s*\"({name})\"")


READERS: Mapping[str, tuple[Reader, ...]] = {
    "nccl": (
        Reader("src", re.compile(r"NCCL_PARAM\s*\(\s*\w+\s*,\s*\"([A-Z0-9_]+)\""), "NCCL_"),
        # Many are handed on by name before they are read; a literal that is no variable shows among the new names.
        Reader("src", re.compile(r"\"(NCCL_[A-Z0-9_]+)\"")),
    ),
    aws_ofi_nccl.NAME: (
        Reader("include", re.compile(r"OFI_NCCL_PARAM\w*\s*\([^()\"]*\"([A-Z0-9_]+)\""), "OFI_NCCL_"),
        Reader("src", _called("getenv", name=r"OFI_NCCL_[A-Z0-9_]+")),
    ),
    "libfabric": (
        Reader("src", re.compile(r"fi_param_define\s*\(\s*(?:NULL|&core_prov)\s*,\s*\"(\w+)\""), "FI_"),
        Reader("prov/efa", re.compile(r"fi_param_define\s*\(\s*&efa_prov\s*,\s*\"(\w+)\""), "FI_EFA_"),
        Reader("prov/efa", _called("getenv", name=r"FI_EFA_[A-Z0-9_]+")),
        Reader("prov/util", re.compile(r"fi_param_define\s*\(\s*(?:NULL|&core_prov)\s*,\s*\"(\w+)\""), "FI_"),
    ),
    "rdma-core": tuple(Reader(folder, _called("getenv", "check_env")) for folder in ("libibverbs", "librdmacm")),
}


class Compared(NamedTuple):
    """A library's variables in a tree against those known: what is not in the file, and what the tree does not read."""

    new: tuple[str, ...]
    not_read: tuple[str, ...]


def names(tree: Path, library: str) -> frozenset[str]:
    """The variables that the library of this source tree reads. Raises RefusedError where that cannot be its tree."""
    if library not in READERS:
        raise RefusedError(f"--library {library}: nothing is known of how it reads variables\n{near(library, READERS)}")
    found = frozenset(name for reader in READERS[library] for name in _names(tree / reader.folder, reader))
    if not found:
        folders = ", ".join(dict.fromkeys(reader.folder for reader in READERS[library]))
        raise RefusedError(f"{tree} reads no variable in {folders}\nname the root of {library}'s source tree")
    return found


def compare(tree: Path, library: str, known: Variables) -> Compared:
    """The variables in a library's source tree against facts/variables.yaml. Raises as `names` does."""
    found, listed = names(tree, library), set(known.libraries[library].names)
    return Compared(tuple(sorted(found - known.names)), tuple(sorted(listed - found)))


def _names(folder: Path, reader: Reader) -> Iterator[str]:
    for file in sorted(folder.rglob("*")):
        if file.suffix in SUFFIXES:
            for match in reader.pattern.finditer(file.read_text(encoding="utf-8", errors="replace")):
                yield reader.prefix + match[1].upper()
