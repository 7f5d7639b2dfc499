"""The check of jobs that exist, whoever wrote them: `invoke job.check`.

`job_files` reads files into parts, each of them what a job is on one node; rules relate a part to what the facts know.
A rule says nothing where it cannot know: of an instance type without facts, of a value that a template leaves open.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import Fabric
from rdma_images.facts import facts_file
from rdma_images.facts.environment import Environment, Variable, Variables
from rdma_images.facts.instances import Instances, InstanceType
from rdma_images.jobs import image_reports
from rdma_images.jobs.check import image_rules, job_files, resource_rules, variable_rules
from rdma_images.jobs.check.job_files import JobFile
from rdma_images.jobs.check.job_part import CheckedJobs, JobFinding, JobPart, UncheckedFile
from rdma_images.jobs.check.rule import EFA, ERDMA, CheckContext, JobRule

# Files that can hold a job, in a folder: train.yaml-template and train.yml.example, too.
JOB_FILE = re.compile(r".+\.(ya?ml([-.]\w+)?|json|sh|bash|sbatch|slurm|sub|py|txt)")
PREFLIGHT = re.compile(r"rdma-preflight .{0,500}?--require[ =](?P<fabric>efa|erdma)\b")
RULES: tuple[JobRule, ...] = tuple(
    value
    for module in (resource_rules, image_rules, variable_rules)
    for value in vars(module).values()
    if isinstance(value, JobRule)
)


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
    contexts = [(file, part, context) for file in job_files_read for part, context in _contexts(file.parts)]
    parts = tuple(part for _, part, _ in contexts)
    if not parts and not unreadable:
        names = ", ".join(map(str, paths))
        templates_text = "".join(f"\n{row.file}: {row.why}" for row in templates[:3])
        raise RefusedError(
            f"{names}: no job in it{templates_text}\ngive a Kubernetes manifest, an sbatch script or a SkyPilot task"
        )
    findings = [finding for file, part, context in contexts for finding in _findings(file, part, context)]
    return CheckedJobs(opened, parts, _join_equal(findings), tuple(templates), tuple(unreadable))


def _files(paths: Sequence[Path], unreadable: list[UncheckedFile]) -> Iterator[Path]:
    """Yield files, also those in folders at any depth, without hidden ones and `invoke job`'s record.

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


def _findings(file: JobFile, part: JobPart, context: CheckContext) -> Iterator[JobFinding]:
    """Yield what is wrong with a part of a file, in the order of the rules."""
    for rule in RULES:
        for problem in rule.check(part, context):
            line = problem.word.line
            is_allowed = rule.id in file.allowed.get(line, ())
            severity, where = problem.severity or rule.severity, (f"{file.name}:{line}",)
            yield JobFinding(rule.id, severity, where, problem.message, problem.fix, rule.source, is_allowed)


def _contexts(parts: Sequence[JobPart]) -> Iterator[tuple[JobPart, CheckContext]]:
    """Yield the parts of a file, each with the facts about it."""
    instances, environment = facts_file.read(Instances), facts_file.read(Environment)
    settings: dict[str, list[Variable]] = {}
    for row in environment.variables.values():
        if row.effect == "harmful" and not row.image_only:
            settings.setdefault(row.name, []).append(row)
    names = {part.instance.text for part in parts if part.instance}
    types = {name: _instance_type(name, instances) for name in names}
    versions = {part.image.text: image_reports.versions(part.image.text) for part in parts if part.image}
    fabrics = [_fabric(part, types) for part in parts]
    uses_fabric = any(_asked_for(part) or _fabric_of_settings(part) for part in parts)
    accelerated = any(fabrics) or any(part.gpus or part.kind != "kubernetes" for part in parts)
    mounts = tuple({mount: None for part in parts for mount in part.pod.mounts})
    for part, fabric in zip(parts, fabrics, strict=True):
        context = CheckContext(
            instances,
            environment,
            settings,
            facts_file.read(Variables),
            node=types[part.instance.text] if part.instance else None,
            fabric=fabric or next(filter(None, fabrics), None),
            versions=versions[part.image.text] if part.image else {},
            uses_fabric=uses_fabric,
            accelerated=accelerated,
            mounts=mounts,
        )
        yield replace(part, lacks_fabric=accelerated and not context.fabric), context


def _instance_type(name: str, instances: Instances) -> InstanceType | None:
    try:
        return instances.find(name)
    except RefusedError:
        return None


def _fabric(part: JobPart, types: Mapping[str, InstanceType | None]) -> Fabric | None:
    node = types[part.instance.text] if part.instance else None
    return node.fabric if node else _asked_for(part) or _fabric_of_settings(part)


def _asked_for(part: JobPart) -> Fabric | None:
    """Return the fabric whose adapters a part asks for."""
    return "efa" if part.amount(EFA) else "erdma" if part.amount(ERDMA) else None


def _fabric_of_settings(part: JobPart) -> Fabric | None:
    """Return the fabric that only its own variables are for, or that rdma-preflight requires."""
    values = {name: word.text for name, word in part.environment.items()}
    match = PREFLIGHT.search(variable_rules.command_text(part))
    required = match["fabric"] if match else values.get("FI_PROVIDER")
    if required == "efa" or any(name.startswith(("FI_EFA_", "OFI_NCCL_")) for name in values):
        return "efa"
    return "erdma" if required == "erdma" or "erdma" in values.get("NCCL_IB_HCA", "") else None


def _join_equal(findings: Iterable[JobFinding]) -> tuple[JobFinding, ...]:
    """Return equal findings of several places as one with all the places, errors first, allowed ones last."""
    places: dict[JobFinding, dict[str, None]] = {}
    for finding in findings:
        places.setdefault(replace(finding, where=()), {}).update(dict.fromkeys(finding.where))
    joined = (replace(finding, where=tuple(positions)) for finding, positions in places.items())
    return tuple(sorted(joined, key=lambda finding: (finding.is_allowed, finding.severity != "error")))
