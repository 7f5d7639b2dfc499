"""The check of jobs that exist, whoever wrote them: `invoke job.check`.

`job_files` reads files into parts, each of them what a job is on one node; rules relate a part to what the facts know.
A rule says nothing where it cannot know: of an instance type without facts, of a value that a template leaves open.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError, suggestion
from rdma_images.core.image import Fabric
from rdma_images.core.paths import COMMAND
from rdma_images.facts import facts_file
from rdma_images.facts.environment import Environment, Variables
from rdma_images.facts.instances import Instances, InstanceType
from rdma_images.jobs import image_reports
from rdma_images.jobs.check import job_files, rules
from rdma_images.jobs.check.job_files import JobFile
from rdma_images.jobs.check.job_part import CheckedJobs, JobFinding, JobPart, UncheckedFile
from rdma_images.jobs.check.rule import EFA, ERDMA, CheckContext, JobRule
from rdma_images.jobs.write.folder import JOB_FILE

# Files that can hold a job, in a folder: train.yaml-template and train.yml.example, too.
CHECKED_NAME = re.compile(r".+\.(ya?ml([-.]\w+)?|json|sh|bash|sbatch|slurm|sub|py|txt)")
PREFLIGHT = re.compile(r"rdma-preflight .{0,500}?--require[ =](?P<fabric>efa|erdma)\b")
RULES = tuple(value for value in vars(rules).values() if isinstance(value, JobRule))


def check_files(paths: Sequence[Path]) -> CheckedJobs:
    """Return what is wrong with the jobs in files, and in the files of folders.

    Raises:
        RefusedError: where no file has a job, and none is unreadable.
    """
    job_files_read: list[JobFile] = []
    templates: list[UncheckedFile] = []
    unreadable: list[UncheckedFile] = []
    opened = list(_files(paths, unreadable))
    for path in opened:
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
    findings += [finding for file in job_files_read for finding in _unknown_rules(file)]
    return CheckedJobs(len(opened), parts, _join_equal(findings), tuple(templates), tuple(unreadable))


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
                if CHECKED_NAME.fullmatch(name) and not name.startswith(".") and name != JOB_FILE
            )


def _findings(file: JobFile, part: JobPart, context: CheckContext) -> Iterator[JobFinding]:
    """Yield what is wrong with a part of a file, in the order of the rules."""
    for rule in RULES:
        for problem in rule.check(part, context):
            line = problem.word.line
            is_allowed = rule.id in file.allowed.get(line, ())
            severity, where = problem.severity or rule.severity, (f"{file.name}:{line}",)
            yield JobFinding(rule.id, severity, where, problem.message, problem.fix, rule.source, is_allowed)


def _unknown_rules(file: JobFile) -> Iterator[JobFinding]:
    """Yield a finding for each name in comments that no rule has."""
    ids = [rule.id for rule in RULES]
    places: dict[str, list[str]] = {}
    for name, line in (row for allowed in file.allowed.values() for row in allowed.items() if row[0] not in ids):
        places.setdefault(name, []).append(f"{file.name}:{line}")
    for name in list(places)[: rules.MAX_NAMES]:
        message, source = f"no rule is called {name}: the comment allows nothing", f"{COMMAND} --help job.check"
        yield JobFinding("comment.rule", "warning", tuple(places[name]), message, suggestion(name, ids), source)


def _contexts(parts: Sequence[JobPart]) -> Iterator[tuple[JobPart, CheckContext]]:
    """Yield the parts of a file, each with the facts about it."""
    instances, environment = facts_file.read(Instances), facts_file.read(Environment)
    types: dict[str, InstanceType] = {}
    for name in {part.instance.text for part in parts if part.instance}:
        with suppress(RefusedError):  # a type without facts
            types[name] = instances.find(name)
    nodes = [types.get(part.instance.text) if part.instance else None for part in parts]
    named = [_named_fabric(part) for part in parts]
    fabrics = [node.fabric if node else fabric for node, fabric in zip(nodes, named, strict=True)]
    versions = {part.image.text: image_reports.versions(part.image.text) for part in parts if part.image}
    accelerated = any(fabrics) or any(part.gpus or part.kind != "kubernetes" for part in parts)
    mounts = tuple({mount: None for part in parts for mount in part.pod.mounts})
    for part, node, fabric in zip(parts, nodes, fabrics, strict=True):
        context = CheckContext(
            instances,
            environment,
            facts_file.read(Variables),
            node=node,
            fabric=fabric or next(filter(None, fabrics), None),
            versions=versions[part.image.text] if part.image else {},
            uses_fabric=any(named),
            accelerated=accelerated,
            mounts=mounts,
        )
        yield replace(part, lacks_fabric=accelerated and not context.fabric), context


def _named_fabric(part: JobPart) -> Fabric | None:
    """Return the fabric of the adapters that a part asks for, of its variables, or that rdma-preflight requires."""
    if part.amount(EFA) or part.amount(ERDMA):
        return "efa" if part.amount(EFA) else "erdma"
    values = {name: word.text for name, word in part.environment.items()}
    match = PREFLIGHT.search(rules.command_text(part))
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
