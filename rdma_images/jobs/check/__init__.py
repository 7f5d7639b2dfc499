"""The check of jobs that exist, whoever wrote them: `invoke job.check`.

`parsers` reads files into parts, each of them what a job is on one node; `rules` relates a part to what the facts know.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.jobs.check import rules
from rdma_images.jobs.check.job_part import CheckedJobs, JobFinding, UncheckedFile
from rdma_images.jobs.check.parsers import job_files
from rdma_images.jobs.check.parsers.job_files import JobFile

# Files that can hold a job, in a folder: train.yaml-template and train.yml.example, too.
JOB_FILE = re.compile(r".+\.(ya?ml([-.]\w+)?|json|sh|bash|sbatch|slurm|sub|py|txt)")


def check_files(paths: Sequence[Path]) -> CheckedJobs:
    """Return what is wrong with the jobs in files, and in the files of folders.

    Raises:
        RefusedError: where no file has a job, and none is unreadable.
    """
    job_files_read: list[JobFile] = []
    templates: list[UncheckedFile] = []
    unreadable: list[UncheckedFile] = []
    opened = 0
    for path in _files(paths, unreadable):
        opened += 1
        try:
            job_files_read.append(job_files.read_file(path))
        except job_files.TemplateError as error:
            templates.append(UncheckedFile(str(path), str(error)))
        except RdmaImagesError as error:
            unreadable.append(UncheckedFile(str(path), str(error)))
    parts = tuple(part for file in job_files_read for part in file.parts)
    if not parts and not unreadable:
        names = ", ".join(map(str, paths))
        templates_text = "".join(f"\n{row.file}: {row.why}" for row in templates[:3])
        raise RefusedError(
            f"{names}: no job in it{templates_text}\n"
            "give a Kubernetes manifest, an sbatch script, a SkyPilot task or a CreateTrainingJob request"
        )
    allowed = {file.name: file.allowed for file in job_files_read}
    findings: list[JobFinding] = []
    for part, rule, problem in rules.check(parts):
        line = problem.word.line
        is_allowed = rule.id in allowed[part.file].get(line, ())
        severity, where = problem.severity or rule.severity, (f"{part.file}:{line}",)
        findings.append(
            JobFinding(rule.id, severity, where, problem.message, problem.fix, rule.source, acknowledged=is_allowed)
        )
    return CheckedJobs(opened, parts, _join_equal(findings), tuple(templates), tuple(unreadable))


def _join_equal(findings: Iterable[JobFinding]) -> tuple[JobFinding, ...]:
    """Return equal findings of several places as one with all the places, errors first, acknowledged ones last.

    All findings of a rule with a summary are one.
    """
    summaries = {rule.id: rule.summary for rule in rules.RULES}
    places: dict[JobFinding, dict[str, None]] = {}
    messages: dict[JobFinding, dict[str, None]] = {}
    for finding in findings:
        summary = summaries.get(finding.rule, "")
        joined = replace(finding, where=(), message=summary or finding.message)
        places.setdefault(joined, {}).update(dict.fromkeys(finding.where))
        if summary:
            messages.setdefault(joined, {})[finding.message] = None
    listed = [
        replace(finding, where=tuple(positions), message=_full_message(finding, messages))
        for finding, positions in places.items()
    ]
    return tuple(sorted(listed, key=lambda finding: (finding.acknowledged, finding.severity != "error")))


def _full_message(finding: JobFinding, messages: Mapping[JobFinding, Iterable[str]]) -> str:
    return finding.message.format(", ".join(messages[finding])) if finding in messages else finding.message


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
