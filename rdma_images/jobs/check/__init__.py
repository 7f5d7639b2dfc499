"""What is wrong with jobs that exist, whoever wrote them: `invoke job.check`.

Files are read into pieces, each the part of a job on one node (kubernetes.py, scripts.py, requests.py); rules relate a
piece to what the facts know (rules/).
"""

from collections.abc import Sequence
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RefusedError
from rdma_images.facts import table
from rdma_images.facts.environment import Environment
from rdma_images.facts.instances import Instances
from rdma_images.facts.variables import Variables
from rdma_images.jobs.check import reading, rules
from rdma_images.jobs.check.foreign_job import Finding

ENDINGS = (".yaml", ".yml", ".json", ".sh", ".sbatch", ".slurm", ".py", ".txt")


def check(paths: Sequence[Path]) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """What was understood of the files, a line for each piece, and what is wrong with it, in the order of the files.

    A folder stands for the files in it that can hold a job. Raises RefusedError where there is no job in any of them.
    """
    pieces = [piece for path in _files(paths) for piece in reading.pieces(path)]
    if not pieces:
        names = ", ".join(map(str, paths))
        raise RefusedError(
            f"{names}: no job in it\n"
            "give a Kubernetes manifest, a SkyPilot or eksctl file, an sbatch script, an `arena submit` command line "
            "or a CreateTrainingJob request"
        )
    tables = rules.Tables(
        table.read("instances.yaml", Instances),
        table.read("environment.yaml", Environment),
        table.read("variables.yaml", Variables),
    )
    found = [finding for piece in pieces for finding in rules.check(piece, pieces, tables)]
    return tuple(str(piece) for piece in pieces), tuple(dict.fromkeys(found))


def _files(paths: Sequence[Path]) -> list[Path]:
    listed: list[Path] = []
    for path in paths:
        if path.is_dir():
            listed += [one for one in files.entries(path) if one.suffix in ENDINGS and one.name != "job.json"]
        else:
            listed.append(path)
    return listed
