"""Read the names of environment variables from the source trees of the libraries that read them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.facts import aws_ofi_nccl
from rdma_images.facts.variables import Variables

SUFFIXES = (".c", ".cc", ".cpp", ".cu", ".h", ".hpp")


class VariablePattern(NamedTuple):
    """How a library reads a variable: a folder below its tree, and a pattern whose group is the rest of the name."""

    folder: str
    pattern: re.Pattern[str]
    prefix: str = ""


def _called(*functions: str, name: str = r"[A-Z][A-Z0-9_]+") -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(functions)})\s*\(\s*\"({name})\"")


PATTERNS: Mapping[str, tuple[VariablePattern, ...]] = {
    "nccl": (
        VariablePattern("src", re.compile(r"NCCL_PARAM\s*\(\s*\w+\s*,\s*\"([A-Z0-9_]+)\""), "NCCL_"),
        # Many are handed on by name before they are read; a literal that is no variable shows among the new names.
        VariablePattern("src", re.compile(r"\"(NCCL_[A-Z0-9_]+)\"")),
    ),
    aws_ofi_nccl.NAME: (
        VariablePattern("include", re.compile(r"OFI_NCCL_PARAM\w*\s*\([^()\"]*\"([A-Z0-9_]+)\""), "OFI_NCCL_"),
        VariablePattern("src", _called("getenv", name=r"OFI_NCCL_[A-Z0-9_]+")),
    ),
    "libfabric": (
        VariablePattern("src", re.compile(r"fi_param_define\s*\(\s*(?:NULL|&core_prov)\s*,\s*\"(\w+)\""), "FI_"),
        VariablePattern("prov/efa", re.compile(r"fi_param_define\s*\(\s*&efa_prov\s*,\s*\"(\w+)\""), "FI_EFA_"),
        VariablePattern("prov/efa", _called("getenv", name=r"FI_EFA_[A-Z0-9_]+")),
        VariablePattern("prov/util", re.compile(r"fi_param_define\s*\(\s*(?:NULL|&core_prov)\s*,\s*\"(\w+)\""), "FI_"),
    ),
    "rdma-core": tuple(
        VariablePattern(folder, _called("getenv", "check_env")) for folder in ("libibverbs", "librdmacm")
    ),
}


class VariableDifference(NamedTuple):
    """A library's variables in a tree against those known: what is not in the file, and what the tree does not read."""

    new: tuple[str, ...]
    not_read: tuple[str, ...]


def read_names(tree: Path, library: str) -> frozenset[str]:
    """Return the variables that the library of this source tree reads. Raises RefusedError where it is another tree."""
    if library not in PATTERNS:
        raise RefusedError(
            f"--library {library}: nothing is known of how it reads variables\n{suggestion(library, PATTERNS)}"
        )
    names = frozenset(name for pattern in PATTERNS[library] for name in _names(tree / pattern.folder, pattern))
    if not names:
        folders = ", ".join(dict.fromkeys(pattern.folder for pattern in PATTERNS[library]))
        raise RefusedError(f"{tree} reads no variable in {folders}\nname the root of {library}'s source tree")
    return names


def compare_variables(tree: Path, library: str, variables: Variables) -> VariableDifference:
    """Compare the variables in a library's source tree with facts/variables.yaml. Raises as `read_names` does."""
    library_names, listed = read_names(tree, library), set(variables.libraries[library].names)
    return VariableDifference(tuple(sorted(library_names - variables.names)), tuple(sorted(listed - library_names)))


def _names(folder: Path, pattern: VariablePattern) -> Iterator[str]:
    for file in sorted(folder.rglob("*")):
        if file.suffix in SUFFIXES:
            for match in pattern.pattern.finditer(file.read_text(encoding="utf-8", errors="replace")):
                yield pattern.prefix + match[1].upper()
