"""From a file to the parts of jobs in it, by what is in the file and not by its name."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from rdma_images.core import files, yaml_file
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.jobs.check.foreign_job import JobPart, LocatedText, Trait
from rdma_images.jobs.check.parsers import arena, compose_file, docker, kubernetes, sagemaker_request, sbatch_scripts

PROGRAMS = (".sh", ".bash", ".py", ".txt", ".sbatch", ".slurm", ".sub")  # no YAML, whatever is in them
RECORD = "job.json"  # of a folder that `invoke job` wrote
STANDARD_INPUT = "-"
MAX_DEPTH = 60  # levels of somebody else's manifest; an affinity in a runtime's pods is 21 levels down
# What Helm or Jinja replaces: an action of their languages, and not Argo's {{workflow.name}}.
HELM = re.compile(
    r"\{\{-?\s*(?:\.\w|\$|/\*|-|\(|(?:include|if|else|end|range|with|define|template|toYaml|default|printf|quote)\b)"
)
JINJA = re.compile(r"\{%-?\s*\w")
DEFINITION = re.compile(r"^kind:\s*[\"']?CustomResourceDefinition\b", re.MULTILINE)
OPEN_VALUE = re.compile(r"(?<=[\s\[{,:])\$\{\w+\}")  # in YAML's flow form its braces would be a mapping
TEMPLATE_NAME = re.compile(r"[.-](?:template|tmpl|tpl|j2|in)$")
CONTENT = re.compile(r"^[ \t]*[^#\s-]", re.MULTILINE)
DOCUMENT = re.compile(r"^---.*$", re.MULTILINE)


class TemplateError(Exception):
    """A file that makes or defines jobs, and has none: a template, or a CRD. Says which."""


def parts(path: Path) -> Iterator[JobPart]:
    """Yield the parts of jobs in a file, with the instance type of the job.json beside it.

    Raises:
        RefusedError: for YAML or JSON that is broken.
        TemplateError: for a file that is passed over.
    """
    instance = _recorded_instance(path)
    for part in _parts(path):
        is_known = part.instance is not None or not instance
        yield part if is_known else replace(part, instance=LocatedText(instance, part.line))


def _recorded_instance(path: Path) -> str:
    """Return the instance type of the job that wrote the file; "" where no job did."""
    try:
        job = json.loads(files.read_text(path.parent / RECORD))
        return str(job["instance"]) if path.name in job["files"] else ""
    except (RdmaImagesError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def _parts(path: Path) -> Iterator[JobPart]:
    is_rendered = str(path) == STANDARD_INPUT
    text = _standard_input() if is_rendered else files.read_text(path)
    name = "standard input" if is_rendered else str(path)
    has_dos_lines = not is_rendered and path.suffix != ".py" and b"\r\n" in files.read_bytes(path)
    is_program = path.suffix in PROGRAMS or text.startswith("#!")
    if path.suffix == ".py" and not sbatch_scripts.begins_with_directive(text):
        return  # a script in it is an example, or a text that it writes
    if sbatch_scripts.is_script(text) or arena.has_command(text) or is_program:
        script_parts = [*sbatch_scripts.parts(text, name), *arena.parts(text, name)]
        if not script_parts:
            script_parts = list(docker.parts(text, name)) or list(sbatch_scripts.launch_parts(text, name))
        traits: dict[Trait, LocatedText] = {}
        if has_dos_lines and text.startswith("#!"):
            traits["dos-lines"] = LocatedText("#!", 1)
        yield from (replace(part, traits={**part.traits, **traits}) for part in script_parts)
    elif HELM.search(text) and not is_rendered:
        raise TemplateError("a Helm template: check what `helm template` makes of it")
    elif JINJA.search(text) and not is_rendered:
        raise TemplateError("a Jinja template: check what is made of it")
    else:
        try:
            yield from _json_parts(text, name) if text.lstrip().startswith("{") else _manifests(text, name)
        except RefusedError:
            if not (HELM.search(text) or JINJA.search(text)):
                raise
            raise RefusedError(
                f"{name}: a template, and no manifest\nrender it first, as `helm template` does"
            ) from None


def _standard_input() -> str:
    text = sys.stdin.read(files.MAX_TEXT_BYTES + 1)
    if len(text) > files.MAX_TEXT_BYTES:
        raise files.FileError(f"standard input: has more than {files.MAX_TEXT_BYTES // 2**20} MiB\ngive less of it")
    return text


def _manifests(text: str, name: str) -> Iterator[JobPart]:
    """Yield the parts of the YAML documents of a text, but of definitions of resources."""
    sections = _documents(text)
    definitions = [DEFINITION.search(section) is not None for section in sections]
    if any(definitions) and all(definitions[:-1]) and not CONTENT.search(sections[-1]):
        raise TemplateError("definitions of Kubernetes resources, and no job")
    manifests = "".join(
        re.sub(r"[^\n]+", "", section) if is_definition else section
        for section, is_definition in zip(sections, definitions, strict=True)
    )
    try:
        documents = yaml_file.documents(manifests, name, MAX_DEPTH)
    except RefusedError:
        if not OPEN_VALUE.search(manifests):
            if TEMPLATE_NAME.search(name):
                raise TemplateError("a template that is no YAML yet: check what is made of it") from None
            raise
        documents = yaml_file.documents(OPEN_VALUE.sub(_plain_word, manifests), name, MAX_DEPTH)
    for document in documents:
        jobs = document.data.get("jobs") if isinstance(document.data, dict) else None
        if isinstance(jobs, dict) and any(isinstance(job, dict) and "launcher" in job for job in jobs.values()):
            raise TemplateError(f"jobs of this tool: `{COMMAND} job --job NAME` checks one as it writes it")
        yield from kubernetes.parts(document)
        yield from compose_file.parts(document)


def _documents(text: str) -> list[str]:
    """Return the sections of a text that have a YAML document each, and the rest of it."""
    starts = [0, *(match.start() for match in DOCUMENT.finditer(text)), len(text)]
    sections = [text[start:stop] for start, stop in pairwise(starts)]
    joined: list[str] = []
    empty: list[str] = []
    for section in sections:
        empty.append(section)
        if CONTENT.search(section):
            joined.append("".join(empty))
            empty = []
    return [*joined, "".join(empty)]


def _plain_word(match: re.Match[str]) -> str:
    """Return an open value as a plain word: `$(NAME)` is YAML wherever it stands."""
    return match[0].replace("${", "$(").replace("}", ")")


def _json_parts(text: str, name: str) -> Iterator[JobPart]:
    """Yield the parts of a JSON document: a SageMaker request, or a Kubernetes object."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise RefusedError(f"{name}:{line}: not valid JSON: {error}\ncorrect it") from None
    if "TrainingJobName" in document:
        yield sagemaker_request.part(document, text, name)
    elif "kind" in document:
        # JSON is YAML, and so are its lines.
        for document in yaml_file.documents(text, name):
            yield from kubernetes.parts(document)
