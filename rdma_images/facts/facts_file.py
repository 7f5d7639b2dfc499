"""One file of facts/: its rows with their sources, read with what the user's own folder says beside it."""

import functools
import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field

from rdma_images.core import files, paths, versions, yaml_file
from rdma_images.core.errors import suggestion
from rdma_images.core.yaml_file import Document, Strict, YamlPath

Confidence = Literal["artefact", "vendor", "third-party"]


def _version(text: str) -> str:
    versions.sort_key(text)
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text


def _url_of_version(text: str) -> str:
    try:
        text.format(version="1.0")
    except (KeyError, IndexError, AttributeError, ValueError):
        raise ValueError(f"{text!r} is no address of a version: {{version}} alone may be in braces") from None
    return text


def _version_requirement(text: str) -> str:
    versions.satisfies("1", text)
    return text


Version = Annotated[str, AfterValidator(_version)]  # text that can be compared as a version
Pattern = Annotated[str, AfterValidator(_pattern)]  # a regular expression
VersionRequirement = Annotated[str, AfterValidator(_version_requirement)]  # ">=2.5,<3"
Needs = dict[str, VersionRequirement]  # by component: {"pytorch": "==2.14.0"}
VersionUrl = Annotated[str, AfterValidator(_url_of_version)]  # {version} stands for a version


class Origin(Strict, defer_build=False):  # built once, for every file names its sources
    """The source of facts: a published file itself, its vendor, or someone else's record."""

    title: str
    confidence: Confidence
    read: date  # the day on which it was read, or last compared

    def __str__(self) -> str:
        """Return the source and how reliable it is, for the end of a refusal."""
        return f"{self.title} ({self.confidence}, read {self.read})"


class Fact(Strict):
    """Values from one source.

    `sources` names another place for single values: {libfabric: changelog}.
    """

    source: str
    sources: dict[str, str] = Field(default_factory=dict)


class VersionRange(Strict):
    """A range of versions."""

    since: Version | None = None  # the first version of it
    before: Version | None = None  # the first version after it

    def holds(self, version: str) -> bool:
        """Return whether `version` is in the range."""
        is_reached = self.since is None or versions.at_least(version, self.since)
        return is_reached and (self.before is None or not versions.at_least(version, self.before))


class VersionedFact(Fact, VersionRange):
    """A fact that holds for a range of one component's versions."""


class FactsFile(Document):
    """A file of facts/: its sources, and tables whose rows name them."""

    FILE: ClassVar[str]  # its name in facts/: "torch.yaml"

    sources: dict[str, Origin]

    def cite(self, row: Fact, value: str = "") -> str:
        """Return where `value` of `row` is from, or the row as a whole."""
        return str(self.sources[row.sources.get(value, row.source)])

    def rows(self) -> Iterator[tuple[YamlPath, Fact]]:
        """Yield every row with its place in the file."""
        for name, field in type(self).model_fields.items():
            table = getattr(self, name)
            key = field.alias or name
            if isinstance(table, Fact):
                yield (key,), table
            elif isinstance(table, Mapping):
                yield from (((key, step), row) for step, row in table.items() if isinstance(row, Fact))
            elif isinstance(table, tuple):
                yield from (((key, step), row) for step, row in enumerate(table) if isinstance(row, Fact))

    def problems(self) -> Iterator[tuple[YamlPath, str]]:
        """Yield (path, sentence) for names of unknown sources or values."""
        for steps, row in self.rows():
            if row.source not in self.sources:
                yield (*steps, "source"), f"unknown source {row.source!r}: {suggestion(row.source, self.sources)}"
            values = [field.alias or name for name, field in type(row).model_fields.items()]
            for value, source in row.sources.items():
                if source not in self.sources:
                    yield (*steps, "sources", value), f"unknown source {source!r}: {suggestion(source, self.sources)}"
                if value not in values:
                    yield (*steps, "sources", value), f"no value {value!r} in this row: {suggestion(value, values)}"


Table = TypeVar("Table", bound=FactsFile)


def read(model: type[Table], folder: Path | None = None, file: str = "") -> Table:
    """Return a table of facts; a process reads each file once.

    Args:
        model: what its file holds; it names the file.
        folder: where the file is; without one, the project's, with the user's own facts/ over it.
        file: its name in facts/, of a model for several files.

    Raises:
        RefusedError: something in a file is wrong; with file and line.
    """
    name = file or model.FILE
    if folder is not None:
        table = _parse(model, folder / name)
    else:
        *users, project = (facts_folder / name for facts_folder in paths.data_folders("facts"))
        table = _parse(model, project, *(path for path in users if files.exists(path)))
    assert isinstance(table, model)
    return table


@functools.cache
def _parse(model: type[FactsFile], path: Path, *extensions: Path) -> FactsFile:
    return yaml_file.load(path, model, *extensions)
