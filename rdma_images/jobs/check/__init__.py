"""The check of jobs that exist, whoever wrote them: `invoke job.check`.

`parsers` reads files into parts, each of them what a job is on one node; `rules` relates a part to what the facts know.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.facts import facts_file
from rdma_images.facts.environment import Environment
from rdma_images.facts.instances import Instances
from rdma_images.facts.variables import Variables
from rdma_images.jobs.check import rules
from rdma_images.jobs.check.foreign_job import CheckedJobs, JobFinding, JobPart, UncheckedFile
from rdma_images.jobs.check.parsers import job_files

# Files that can hold a job, in a folder: train.yaml-template and train.yml.example, too.
JOB_FILE = re.compile(r".+\.(ya?ml([-.]\w+)?|json|sh|bash|sbatch|slurm|sub|py|txt)")


def check_files(paths: Sequence[Path]) -> CheckedJobs:
    """Return what is wrong with the jobs in files, and in the files of folders.

    Raises:
        RefusedError: where no file has a job, and none is unreadable.
    """
    parts: list[JobPart] = []
    templates: list[UncheckedFile] = []
    unreadable: list[UncheckedFile] = []
    opened = 0
    for path in _files(paths, unreadable):
        opened += 1
        try:
            parts += job_files.parts(path)
        except job_files.TemplateError as error:
            templates.append(UncheckedFile(str(path), str(error)))
        except RdmaImagesError as error:
            unreadable.append(UncheckedFile(str(path), str(error)))
    if not parts and not unreadable:
        names = ", ".join(map(str, paths))
        templates_text = "".join(f"\n{row.file}: {row.why}" for row in templates[:3])
        raise RefusedError(
            f"{names}: no job in it{templates_text}\n"
            "give a Kubernetes manifest, a SkyPilot or eksctl file, an sbatch script, a script with a launcher, as "
            "torchrun or mpirun, or with `docker run --gpus`, a compose file with GPUs, an `arena submit` command line "
            "or a CreateTrainingJob request"
        )
    tables = rules.FactTables(
        facts_file.read(Instances),
        facts_file.read(Environment),
        facts_file.read(Variables),
    )
    findings = _group_equal(rules.check(parts, tables))
    return CheckedJobs(opened, tuple(parts), findings, tuple(templates), tuple(unreadable))


def _group_equal(findings: Iterable[JobFinding]) -> tuple[JobFinding, ...]:
    """Return equal findings of several places as one with all the places, errors first."""
    grouped: dict[JobFinding, dict[str, None]] = {}
    for finding in findings:
        grouped.setdefault(replace(finding, where=()), {}).update(dict.fromkeys(finding.where))
    joined = [replace(finding, where=tuple(positions)) for finding, positions in grouped.items()]
    return tuple(sorted(joined, key=lambda finding: finding.severity != "error"))


def _files(paths: Sequence[Path], unreadable: list[UncheckedFile]) -> Iterator[Path]:
    """Yield files, those of folders in depth, without hidden ones and `invoke job`'s record.

    A folder that cannot be read is added to `unreadable`.
    """

    def add(error: OSError) -> None:
        unreadable.append(UncheckedFile(str(error.filename), str(files.describe_file_error(error))))

    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, folders, names in os.walk(path, onerror=add):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield from (
                Path(folder, name)
                for name in sorted(names)
                if JOB_FILE.fullmatch(name) and not name.startswith(".") and name != job_files.RECORD
            )
