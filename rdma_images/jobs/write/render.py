"""From a job to its files: the templates of its launcher, under jobs/."""

import ast
import base64
import importlib
import json
import re
import shlex
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import jinja2

from rdma_images.core import paths, templates
from rdma_images.core.errors import RefusedError
from rdma_images.jobs import node as node_programs
from rdma_images.jobs.node import all_reduce_check, node_check
from rdma_images.jobs.write.job import Job
from rdma_images.registry.reference import with_registry_host

ENDING = ".j2"
README, KUSTOMIZATION, SERVER = "README.md", "kustomization.yaml", "server.yaml"
NOT_IN_YAML = re.compile(
    "[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"
)  # yaml.org/spec/1.2.2, c-printable, and line breaks of 1.1
TAKEN_BY_PODS = re.compile(r"\$(?=[$(])")
# Registers each module as imported before the next, and runs the program as __main__.
BUNDLE = """
import sys, types
for name, source in {modules!r}:
    sys.modules[name] = types.ModuleType(name)
    exec(source, sys.modules[name].__dict__)
exec({program!r})
"""
# What its working directory hides of Python's own modules is not for a program that checks the job.
START = (
    "import sys;sys.path[:]=filter(None,sys.path);"
    "exec(__import__('zlib').decompress(__import__('base64').b64decode('{}')))"
)
WIDTH = 110  # characters of a command's line in a script


def render_templates(launcher: str, context: Mapping[str, object]) -> dict[str, str]:
    """Return each template of jobs/<launcher>/ filled in, by the name of its file.

    One that comes out empty is left out. For a job in parts server.yaml is filled in for each part, as <role>.yaml.
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
    """Yield each file that a template makes, and what its context has for that file alone."""
    job = context.get("job")
    if name == SERVER and isinstance(job, Job) and job.roles:
        yield from ((f"{role.role}.yaml", {"job": role, "server": job}) for role in job.roles)
    else:
        yield name, {"server": job}


def _written_names(texts: Mapping[str, str], context: Mapping[str, object]) -> dict[str, object]:
    """Return what kustomization.yaml and README.md say of the files before them."""
    job = context.get("job")
    folders = [folder.name for folder in job.folders] if isinstance(job, Job) else []
    manifests = [name for name in texts if name.endswith(".yaml")]
    target = "-k ." if KUSTOMIZATION in texts else f"-f {next(iter(manifests), '')}"
    return {"manifests": manifests, "files": [*texts, *folders], "manifest": target}


def literal_in_pods(job: Job) -> Job:
    """Return the job with words and variables that a pod leaves as they are.

    Kubernetes replaces `$$` by `$`, and `$(NAME)` by a variable, in a container's command and variables
    (kubernetes/kubernetes, third_party/forked/golang/expansion).
    """
    return replace(
        job,
        command=tuple(TAKEN_BY_PODS.sub("$$", word) for word in job.command),
        environment={name: TAKEN_BY_PODS.sub("$$", value) for name, value in job.environment.items()},
        roles=tuple(map(literal_in_pods, job.roles)),
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


def render_preflight(fabric: str, gpus: int) -> str:
    """Return the script that checks the nodes of any job as those of jobs here.

    Args:
        fabric: What must be there: efa, erdma or ib; "" for whatever a node has.
        gpus: GPUs of each node; 0 for those that are visible.
    """
    return _text("shared/preflight.sh", {"fabric": fabric, "gpus": gpus})


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
    environment.globals["node_check"] = packed_program(node_check)
    environment.globals["all_reduce_check"] = packed_program(all_reduce_check)
    return environment


@cache
def packed_program(module: ModuleType) -> str:
    """Return a program, and the modules of its package that it imports, for `python3 -c`.

    Returns:
        One line without a quotation mark other than the apostrophe.
    """
    sources: dict[str, str] = {}
    _add_sources(module.__name__, sources)
    program = sources.pop(module.__name__)
    bundle = BUNDLE.format(modules=list(sources.items()), program=program)
    return START.format(base64.b64encode(zlib.compress(bundle.encode(), 9)).decode())


def _add_sources(name: str, sources: dict[str, str]) -> None:
    """Add a module of jobs/node, without docstrings, after those that it imports."""
    tree = ast.parse(Path(str(importlib.import_module(name).__file__)).read_text(encoding="utf-8"))
    imported = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    for module in imported:
        if module.startswith(f"{node_programs.__name__}.") and module not in sources:
            _add_sources(module, sources)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    sources[name] = ast.unparse(tree)


def _refuse(reason: str, fix: str) -> NoReturn:
    """Raise RefusedError: templates call this for a job that their launcher cannot run."""
    raise RefusedError(f"{reason}\n{fix}")
