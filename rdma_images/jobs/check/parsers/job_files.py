"""From a file to the parts of jobs in it, by what is in the file and not by its name."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rdma_images.core import files, yaml_file
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.jobs.check import acknowledgements
from rdma_images.jobs.check.job_part import JobPart, LocatedText
from rdma_images.jobs.check.parsers import kubernetes_manifests, sagemaker_requests, sbatch_scripts, skypilot_tasks
from rdma_images.jobs.check.parsers.yaml_node import YamlNode

PROGRAMS = (".sh", ".bash", ".py", ".txt", ".sbatch", ".slurm", ".sub")  # no YAML, whatever is in them
RECORD = "job.json"  # of a folder that `invoke job` wrote
STANDARD_INPUT = "-"
MAX_DEPTH = 60  # levels of somebody else's manifest; an affinity in a runtime's pods is 21 levels down
# What Helm or Jinja replaces: an action of their languages, and not Argo's {{workflow.name}}.
TEMPLATE = re.compile(
    r"\{%-?\s*\w|"
    r"\{\{-?\s*(?:\.\w|\$|/\*|-|\(|(?:include|if|else|end|range|with|define|template|toYaml|default|printf|quote)\b)"
)
TEMPLATE_NAME = re.compile(r"[.-](?:template|tmpl|tpl|j2|in)$")
DEFINITION = re.compile(r"^kind:\s*[\"']?CustomResourceDefinition\b(?:(?!^---)[^\n]*\n?)*", re.MULTILINE)
OPEN_VALUE = re.compile(r"(?<=[\s\[{,:])\$\{(\w+)\}")  # in YAML's flow form its braces would be a mapping


class TemplateError(Exception):
    """A file that makes or defines jobs, and has none: a template, or a CRD. Says which."""


@dataclass(frozen=True)
class JobFile:
    """The parts of jobs in a file, and the rules that its comments allow, by line."""

    name: str
    parts: tuple[JobPart, ...]
    allowed: Mapping[int, frozenset[str]]


def read_file(path: Path) -> JobFile:
    """Return the parts of jobs in a file, with the instance type of the job.json beside it.

    Raises:
        RefusedError: for YAML or JSON that is broken.
        TemplateError: for a file that is passed over.
    """
    is_rendered = str(path) == STANDARD_INPUT
    text = _standard_input() if is_rendered else files.read_text(path)
    name = "standard input" if is_rendered else str(path)
    parts = tuple(_parts(text, name, path.suffix, is_rendered))
    if instance := _recorded_instance(path) if parts else "":
        parts = tuple(replace(part, instance=part.instance or LocatedText(instance, part.line)) for part in parts)
    return JobFile(name, parts, acknowledgements.allowed_rules(text) if parts else {})


def _recorded_instance(path: Path) -> str:
    """Return the instance type of the job that wrote the file; "" where no job did."""
    try:
        job = json.loads(files.read_text(path.parent / RECORD))
        return str(job["instance"]) if path.name in job["files"] else ""
    except (RdmaImagesError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def _standard_input() -> str:
    text = sys.stdin.read(files.MAX_TEXT_BYTES + 1)
    if len(text) > files.MAX_TEXT_BYTES:
        raise files.FileError(f"standard input: has more than {files.MAX_TEXT_BYTES // 2**20} MiB\ngive less of it")
    return text


def _parts(text: str, name: str, suffix: str, is_rendered: bool) -> Iterator[JobPart]:
    """Yield the parts of a text; a rendered one may have another program's braces in it."""
    if sbatch_scripts.is_script(text) or suffix in PROGRAMS or text.startswith("#!"):
        # A script in a Python program is an example, or a text that the program writes.
        if sbatch_scripts.is_script(text) and (suffix != ".py" or sbatch_scripts.begins_with_directive(text)):
            yield sbatch_scripts.read_script(text, name)
        return
    is_template = TEMPLATE.search(text) is not None
    if is_template and not is_rendered:
        raise TemplateError("a template of Helm or Jinja: check what is made of it")
    try:
        yield from _json_parts(text, name) if text.lstrip().startswith("{") else _yaml_parts(text, name)
    except RefusedError:
        if TEMPLATE_NAME.search(name):
            raise TemplateError("a template that is no YAML yet: check what is made of it") from None
        if is_template:
            raise RefusedError(
                f"{name}: a template, and no manifest\nrender it first, as `helm template` does"
            ) from None
        raise


def _yaml_parts(text: str, name: str) -> Iterator[JobPart]:
    """Yield the parts of the YAML documents of a text, but of definitions of resources."""
    # `$(NAME)` is YAML wherever it stands; the lines of a definition, which may be deep, are left empty.
    manifests = OPEN_VALUE.sub(r"$(\1)", DEFINITION.sub(lambda match: "\n" * match[0].count("\n"), text))
    for document in yaml_file.documents(manifests, name, MAX_DEPTH):
        yield from _document_parts(document)


def _document_parts(document: yaml_file.ForeignDocument) -> Iterator[JobPart]:
    top = YamlNode(document, document.data)
    if any("launcher" in job.mapping for job in top.lookup("jobs").children):
        raise TemplateError(f"jobs of this tool: `{COMMAND} job --job NAME` checks one as it writes it")
    if "kind" in top.mapping:
        yield from kubernetes_manifests.read_pods(top)
    elif skypilot_tasks.is_task(top):
        yield skypilot_tasks.read_task(top)


def _json_parts(text: str, name: str) -> Iterator[JobPart]:
    """Yield the parts of a JSON document: a SageMaker request, or a Kubernetes object."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise RefusedError(f"{name}:{line}: not valid JSON: {error}\ncorrect it") from None
    if "TrainingJobName" in content:
        yield sagemaker_requests.read_request(content, text, name)
    elif "kind" in content:
        for document in yaml_file.documents(text, name, MAX_DEPTH):  # JSON is YAML, and so are its lines
            yield from _document_parts(document)
