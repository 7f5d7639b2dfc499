"""From a file to the pieces of jobs in it, by what is in the file and not by its name."""

import json
from collections.abc import Iterator
from pathlib import Path

from rdma_images.core import files, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.jobs.check import kubernetes, requests, scripts
from rdma_images.jobs.check.foreign_job import Piece

PROGRAMS = (".sh", ".py", ".txt", ".sbatch", ".slurm")  # no YAML, whatever is in them


def pieces(path: Path) -> Iterator[Piece]:
    """The pieces of jobs in a file. Raises RefusedError for YAML or JSON that is broken."""
    text, name = files.read(path), str(path)
    if text.lstrip().startswith("{"):
        yield from requests.pieces(_json(text, name), text, name)
    elif scripts.is_script(text):
        yield from scripts.pieces(text, name)
    elif path.suffix not in PROGRAMS and not text.startswith("#!"):
        for document in yaml_file.documents(text, name):
            yield from kubernetes.pieces(document)


def _json(text: str, name: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise RefusedError(f"{name}:{line}: not valid JSON: {error}\ncorrect it") from None
