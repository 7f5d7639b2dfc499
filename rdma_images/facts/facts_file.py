"""One file of facts/, with what the user's own folder says beside it."""

import functools
from pathlib import Path
from typing import TypeVar

from rdma_images.core import files, paths, yaml_file
from rdma_images.facts.origin import FactsFile

Table = TypeVar("Table", bound=FactsFile)
FileState = tuple[int, int, int]  # of a file: inode, size, time of the last change


def read(model: type[Table], folder: Path | None = None) -> Table:
    """Return a table of facts, parsed once for each state of its files.

    Args:
        model: what its file holds; it names the file.
        folder: where the file is; without one, the project's, with the user's own facts/ over it.

    Raises:
        RefusedError: something in a file is wrong; with file and line.
    """
    if folder is not None:
        return _read((folder / model.FILE,), model)
    *users, project = (facts_folder / model.FILE for facts_folder in paths.data_folders("facts"))
    return _read((project, *(path for path in users if files.exists(path))), model)


def _read(tables: tuple[Path, ...], model: type[Table]) -> Table:
    """Return the first file as `model`, extended by the others."""
    try:
        versions = tuple(_file_state(path) for path in tables)
    except OSError:
        return yaml_file.load(tables[0], model, *tables[1:])  # which says what is wrong with the file
    table = _parse(tables, versions, model)
    assert isinstance(table, model)
    return table


def _file_state(path: Path) -> FileState:
    """Return what changes when somebody writes the file."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@functools.lru_cache(maxsize=64)
def _parse(tables: tuple[Path, ...], _versions: tuple[FileState, ...], model: type[FactsFile]) -> FactsFile:
    return yaml_file.load(tables[0], model, *tables[1:])
