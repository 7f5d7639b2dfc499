"""From a job to its files: the templates of its launcher, under jobs/."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NoReturn

import jinja2

from rdma_images.core import paths, templates
from rdma_images.core.errors import RefusedError
from rdma_images.jobs.write.job import Job
from rdma_images.registry.reference import with_registry_host

ENDING = ".j2"
README, KUSTOMIZATION, SERVER = "README.md", "kustomization.yaml", "server.yaml"
NOT_IN_YAML = re.compile(
    "[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"
)  # yaml.org/spec/1.2.2, c-printable, and line breaks of 1.1
TAKEN_BY_PODS = re.compile(r"\$(?=[$(])")
WIDTH = 110  # characters of a command's line in a script


def render_templates(launcher: str, context: Mapping[str, object]) -> dict[str, str]:
    """Return each template of jobs/<launcher>/ filled in, by the name of its file.

    An empty file is left out. For a job in parts, server.yaml is filled in for each part, as <role>.yaml.
    kustomization.yaml and README.md come last: `manifests` and `files` of their context are the names of the others.

    Raises RefusedError where the launcher has no templates.
    """
    folder = paths.find_data(f"jobs/{launcher}")
    names = [path.name.removesuffix(ENDING) for path in folder.glob(f"*{ENDING}")]
    if not names:
        raise RefusedError(
            f"{folder}: no templates (*{ENDING}) for the launcher {launcher}\n"
            "add a template for each file that the launcher submits"
        )
    texts: dict[str, str] = {}
    with templates.template_errors(f"launcher {launcher}"):
        for name in sorted(names, key=lambda name: (name == README, name == KUSTOMIZATION, name)):
            for file, changes in _parts(name, context):
                text = _text(f"{launcher}/{name}", {**context, **changes, **_written_names(texts, context)})
                if text.strip():
                    texts[file] = text
    return texts


def _parts(name: str, context: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield each file that a template makes, and the variables for that file alone."""
    job = context.get("job")
    if name == SERVER and isinstance(job, Job) and job.roles:
        yield from ((f"{role.role}.yaml", {"job": role, "server": job}) for role in job.roles)
    else:
        yield name, {"server": job}


def _written_names(texts: Mapping[str, str], context: Mapping[str, object]) -> dict[str, object]:
    """Return the variables by which kustomization.yaml and README.md name the files before them."""
    job = context.get("job")
    folders = [folder.name for folder in job.folders] if isinstance(job, Job) else []
    manifests = [name for name in texts if name.endswith(".yaml")]
    target = "-k ." if KUSTOMIZATION in texts else f"-f {next(iter(manifests), '')}"
    return {"manifests": manifests, "files": [*texts, *folders], "manifest": target}


def escape_for_pods(job: Job) -> Job:
    """Return the job with words and variables that a pod leaves as they are.

    Kubernetes replaces `$$` by `$`, and `$(NAME)` by a variable, in a container's command and variables
    (kubernetes/kubernetes, third_party/forked/golang/expansion).
    """
    return replace(
        job,
        command=tuple(TAKEN_BY_PODS.sub("$$", word) for word in job.command),
        environment={name: TAKEN_BY_PODS.sub("$$", value) for name, value in job.environment.items()},
        roles=tuple(map(escape_for_pods, job.roles)),
    )


def quoted(text: str) -> str:
    """Return a text in double quotes, for JSON and for YAML, which has no surrogates."""
    return NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def shell(words: Sequence[str]) -> str:
    """Return a command for sh, over as many lines as it needs; those after the first are indented."""
    lines = [""]
    for word in map(shlex.quote, words):
        if lines[-1] and len(lines[-1]) + len(word) > WIDTH:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n  ".join(lines)


def _text(name: str, context: Mapping[str, object]) -> str:
    return _environment().get_template(name + ENDING).render(context).strip("\n") + "\n"


@cache
def _environment() -> jinja2.Environment:
    environment = templates.environment(paths.data_folders("jobs"))
    environment.filters["shell"] = shell
    environment.filters["word"] = shlex.quote
    environment.filters["quoted"] = quoted
    environment.filters["with_registry_host"] = with_registry_host
    environment.globals["refuse"] = _refuse
    return environment


def _refuse(reason: str, fix: str) -> NoReturn:
    """Raise RefusedError: templates call this for a job that their launcher cannot run."""
    raise RefusedError(f"{reason}\n{fix}")
