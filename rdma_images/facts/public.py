"""Facts whose source is a file in a public repository: which file at which commit, so that it can be read again.

A source says it in its `what`: "OWNER/NAME, PATH @COMMIT (more words), PATH @COMMIT". A path has a slash or a dot,
a commit at least 7 hex digits.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict
from rich.table import Table

from rdma_images.core import paths, yaml_file
from rdma_images.facts.origin import Origin

_REPOSITORY = re.compile(r"([\w.-]+/[\w.-]+), ")
_FILE = re.compile(r"([^\s,]*[/.][^\s,]*) @([0-9a-f]{7,40})\b")


@dataclass(frozen=True)
class PublicFile:
    """A file that facts were read from."""

    facts: str  # "environment.yaml"
    source: str  # its name there
    repository: str  # on GitHub: "aws/aws-ofi-nccl"
    path: str
    commit: str
    read: str  # the day, "2026-11-22"
    rows: tuple[str, ...]  # whose values are from it: "variables.tuner"

    @property
    def address(self) -> str:
        """Its web address."""
        return f"https://github.com/{self.repository}/blob/{self.commit}/{self.path}"


class _AnyFacts(yaml_file.Document):
    """Any file of facts: its sources as they are in all of them, and its rows as they are written."""

    model_config = ConfigDict(extra="allow")
    sources: dict[str, Origin]


def files(folder: Path = paths.FACTS) -> list[PublicFile]:
    """Return every such file, in the order of the facts."""
    return [public_file for path in sorted(folder.glob("*.yaml")) for public_file in _read_public(path)]


def _read_public(path: Path) -> Iterator[PublicFile]:
    """Yield the public files of one file of facts. Raises RefusedError with file and line for one that is not right."""
    document = yaml_file.load(path, _AnyFacts)
    rows = list(_rows(document.model_extra))
    for source, origin in document.sources.items():
        sentence = origin.what
        if not (repository := _REPOSITORY.match(sentence)):
            continue
        cited = tuple(dict.fromkeys(row for row, name in rows if name == source))
        for file, commit in _FILE.findall(sentence[repository.end() :]):
            yield PublicFile(path.name, source, repository[1], file, commit, str(origin.read), cited)


def _rows(node: Any, steps: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield each row of a facts file with each source that it names."""
    entries = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    if isinstance(node, Mapping) and isinstance(node.get("source"), str):
        for source in (node["source"], *node.get("sources", {}).values()):
            yield ".".join(steps), source
    for key, value in entries:
        yield from _rows(value, (*steps, str(key)))


def table(public_files: Sequence[PublicFile]) -> Table:
    """Return the files as a table, a row each."""
    rows = Table("facts", "source", "file", "read", "rows", box=None, pad_edge=False, header_style="bold")
    for public_file in public_files:
        rows.add_row(
            public_file.facts, public_file.source, public_file.address, public_file.read, ", ".join(public_file.rows)
        )
    return rows


def as_json(public_files: Sequence[PublicFile]) -> str:
    """Return the files as JSON."""
    return json.dumps(
        [asdict(public_file) | {"address": public_file.address} for public_file in public_files], indent=2
    )
