"""The check of jobs that exist, whoever wrote them: `invoke job.check`.

`job_files` reads files into node groups, each the nodes of one kind; rules relate a group to what the facts know.
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
from rdma_images.facts.environment import Environment, KnownVariables
from rdma_images.facts.instances import Instances, InstanceType
from rdma_images.jobs import image_reports
from rdma_images.jobs.check import job_files, rules
from rdma_images.jobs.check.job_files import JobFile
from rdma_images.jobs.check.node_group import CheckedJobs, JobFinding, NodeGroup, UncheckedFile
from rdma_images.jobs.check.rule import EFA, ERDMA, CheckContext, JobRule
from rdma_images.jobs.write.job_folder import JOB_FILE

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
    contexts = [(file, group, context) for file in job_files_read for group, context in _contexts(file.groups)]
    groups = tuple(group for _, group, _ in contexts)
    if not groups and not unreadable:
        names = ", ".join(map(str, paths))
        templates_text = "".join(f"\n{row.file}: {row.why}" for row in templates[:3])
        raise RefusedError(
            f"{names}: no job in it{templates_text}\ngive a Kubernetes manifest, an sbatch script or a SkyPilot task"
        )
    findings = [finding for file, group, context in contexts for finding in _findings(file, group, context)]
    findings += [finding for file in job_files_read for finding in _unknown_rules(file)]
    return CheckedJobs(len(opened), groups, _join_equal(findings), tuple(templates), tuple(unreadable))


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


def _findings(file: JobFile, group: NodeGroup, context: CheckContext) -> Iterator[JobFinding]:
    """Yield what is wrong with a group of a file, in the order of the rules."""
    for rule in RULES:
        for problem in rule.check(group, context):
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


def _contexts(groups: Sequence[NodeGroup]) -> Iterator[tuple[NodeGroup, CheckContext]]:
    """Yield the groups of a file, each with the facts about it."""
    instances, environment = facts_file.read(Instances), facts_file.read(Environment)
    types: dict[str, InstanceType] = {}
    for name in {group.instance.text for group in groups if group.instance}:
        with suppress(RefusedError):  # a type without facts
            types[name] = instances.find(name)
    nodes = [types.get(group.instance.text) if group.instance else None for group in groups]
    named = [_named_fabric(group) for group in groups]
    fabrics = [node.fabric if node else fabric for node, fabric in zip(nodes, named, strict=True)]
    versions = {group.image.text: image_reports.component_versions(group.image.text) for group in groups if group.image}
    accelerated = any(fabrics) or any(group.gpus or group.kind != "kubernetes" for group in groups)
    mounts = tuple({mount: None for group in groups for mount in group.pod.mounts})
    for group, node, fabric in zip(groups, nodes, fabrics, strict=True):
        context = CheckContext(
            instances,
            environment,
            facts_file.read(KnownVariables),
            node=node,
            fabric=fabric or next(filter(None, fabrics), None),
            versions=versions[group.image.text] if group.image else {},
            uses_fabric=any(named),
            requests_gpus=accelerated,
            mounts=mounts,
        )
        yield replace(group, fabric_is_unknown=accelerated and not context.fabric), context


def _named_fabric(group: NodeGroup) -> Fabric | None:
    """Return the fabric of the adapters that a group asks for, of its variables, or that rdma-preflight requires."""
    if group.amount(EFA) or group.amount(ERDMA):
        return "efa" if group.amount(EFA) else "erdma"
    values = {name: word.text for name, word in group.environment.items()}
    match = PREFLIGHT.search(rules.command_text(group))
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
