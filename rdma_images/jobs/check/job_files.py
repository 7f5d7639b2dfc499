"""From a file to the node groups in it, by what is in the file and not by its name."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rdma_images.core import files, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.jobs.check import kubernetes_manifests, sbatch_scripts, skypilot_tasks
from rdma_images.jobs.check.node_group import LocatedText, NodeGroup
from rdma_images.jobs.check.yaml_node import YamlNode
from rdma_images.jobs.write import job_folder

PROGRAMS = (".sh", ".bash", ".py", ".txt", ".sbatch", ".slurm", ".sub")  # no YAML, whatever is in them
STANDARD_INPUT = Path("/dev/stdin")  # what another program rendered, with braces that are meant
MAX_DEPTH = 60  # levels of somebody else's manifest; an affinity in a runtime's pods is 21 levels down
# What Helm or Jinja replaces: an action of their languages, and not Argo's {{workflow.name}}.
TEMPLATE = re.compile(
    r"\{%-?\s*\w|"
    r"\{\{-?\s*(?:\.\w|\$|/\*|-|\(|(?:include|if|else|end|range|with|define|template|toYaml|default|printf|quote)\b)"
)
TEMPLATE_NAME = re.compile(r"[.-](?:template|tmpl|tpl|j2|in)$")
OPEN_VALUE = re.compile(r"(?<=[\s\[{,:])\$\{(\w+)\}")  # in YAML's flow form its braces would be a mapping
ALLOWED = re.compile(r"#[ \t]*rdma-images:[ \t]*allow[ \t]+(?P<rules>[\w.-]+(?:[ \t]*,[ \t]*[\w.-]+)*)")
LONE_COMMENT = re.compile(r"[ \t]*#(?!SBATCH\b)")


class TemplateError(Exception):
    """The file is a template (Helm, jinja): only its output can be checked."""


@dataclass(frozen=True)
class JobFile:
    """The groups of jobs in a file, and the rules that its comments allow, as `allowed_rules` returns them."""

    name: str
    groups: tuple[NodeGroup, ...]
    allowed: Mapping[int, Mapping[str, int]]


def read_file(path: Path) -> JobFile:
    """Return the node groups in a file, with the instance type of the job.json beside it.

    Raises:
        RefusedError: for YAML that is broken.
        TemplateError: for a file that is passed over.
    """
    text = files.read_text(path)
    groups = tuple(_node_groups(text, path))
    if instance := _recorded_instance(path) if groups else "":
        groups = tuple(replace(group, instance=group.instance or LocatedText(instance, group.line)) for group in groups)
    return JobFile(str(path), groups, allowed_rules(text) if groups else {})


def _recorded_instance(path: Path) -> str:
    """Return the instance type of the job that wrote the file; "" where no job did."""
    with suppress(RefusedError):
        return job_folder.load(path.parent).instance if path.name in job_folder.written_files(path.parent) else ""
    return ""


def _node_groups(text: str, path: Path) -> Iterator[NodeGroup]:
    """Yield the groups of a file's text."""
    if sbatch_scripts.is_script(text) or path.suffix in PROGRAMS or text.startswith("#!"):
        # A script in a Python program is an example, or a text that the program writes.
        if sbatch_scripts.is_script(text) and (path.suffix != ".py" or sbatch_scripts.begins_with_directive(text)):
            yield sbatch_scripts.read_script(text, str(path))
        return
    if path != STANDARD_INPUT and TEMPLATE.search(text):
        raise TemplateError("a template of Helm or Jinja: check its output")
    try:
        # `$(NAME)` is YAML wherever it stands.
        for document in yaml_file.documents(OPEN_VALUE.sub(r"$(\1)", text), str(path), MAX_DEPTH):
            yield from _document_groups(document)
    except RefusedError:
        if TEMPLATE_NAME.search(path.name):
            raise TemplateError("a template that is no YAML yet: check its output") from None
        raise


def _document_groups(document: yaml_file.ForeignDocument) -> Iterator[NodeGroup]:
    top = YamlNode(document, document.data)
    if any("launcher" in job.mapping for job in top.lookup("jobs").children):
        raise TemplateError(f"jobs of this tool: `{COMMAND} job --job NAME` checks one as it writes it")
    if "kind" in top.mapping:
        yield from kubernetes_manifests.read_pods(top)
    elif skypilot_tasks.is_task(top):
        yield skypilot_tasks.read_task(top)


def allowed_rules(text: str) -> Mapping[int, Mapping[str, int]]:
    """Return the rules that comments `# rdma-images: allow RULE` allow, by the line that they are about, from 1.

    Each with the line of its comment. A comment is about its own line; one that has the line to itself is about the
    next line that is no comment.
    """
    allowed: dict[int, dict[str, int]] = {}
    pending: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1) if "rdma-images:" in text else ():
        match = ALLOWED.search(line)
        pending |= dict.fromkeys(re.split(r"[ \t]*,[ \t]*", match["rules"]), number) if match else {}
        if pending and not LONE_COMMENT.match(line):
            allowed[number], pending = pending, {}
    return allowed
