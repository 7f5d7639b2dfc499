"""One file of facts/, with what the user's own folder says beside it."""

from pathlib import Path
from typing import TypeVar

from rdma_images.core import files, paths, yaml_file
from rdma_images.facts.origin import FactsFile

Table = TypeVar("Table", bound=FactsFile)


def read(name: str, model: type[Table], folder: Path | None = None) -> Table:
    """The table "torch.yaml" of `folder`; without one, what the project brings and the user's own facts/ over it.

    Raises RefusedError with file and line for what does not hold together.
    """
    if folder is not None:
        return yaml_file.load(folder / name, model)
    *own, known = (place / name for place in paths.places("facts"))
    return yaml_file.load(known, model, *(path for path in own if files.is_there(path)))
