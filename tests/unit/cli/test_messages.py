"""The options that messages name: the task that shows a message has them, or the one that the message names."""

import ast
import re
from collections.abc import Iterator

import tasks
from rdma_images.core.paths import PACKAGE

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# "invoke TASK --option", and "build it without --option".
COMMAND = re.compile(r"\b(?:invoke (?P<task>[a-z][a-z.]*[a-z])\b|build(?: it)? with(?:out)?)(?P<options>[^`,;\n]*)")
OF_OTHER_PROGRAMS = {
    *("--container-env", "--decode", "--entrypoint", "--epochs", "--force-unsafe-io", "--format", "--from-file"),
    *("--hash", "--help", "--index-url", "--no-deps", "--output", "--prefill", "--require", "--rm", "--scanners"),
    *("--showformat", "--version", "--wheel-dir"),
}
# Packages whose messages few tasks show. Those of others may name an option of any task.
TASKS = {
    "ci": ("ci.matrix",),
    "jobs/check": ("job.check",),
    "jobs/results": ("verdict", "job.compare", "job.run"),
    "jobs/run": ("job.run",),
    "jobs/write": ("job", "cluster"),
    "publish": ("publish", "verify", "scan", "build"),
    "validate": ("validate", "plan", "build"),
}
WITHOUT_MESSAGES = re.compile(r"(cli/program|datapath|preflight|validate/probes)\b")


def sentences(node: ast.AST) -> Iterator[str]:
    """Yield the strings below a node that are no docstrings, with {} for what is put into them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr | ast.Constant):
            yield text(child)
        elif not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            yield from sentences(child)


def text(node: ast.AST) -> str:
    if isinstance(node, ast.FormattedValue):
        return "invoke" if ast.unparse(node.value) == "COMMAND" else "{}"
    return str(node.value) if isinstance(node, ast.Constant) else "".join(map(text, ast.iter_child_nodes(node)))


def test_a_message_names_options_that_its_task_has() -> None:
    contexts = tasks.ns.to_contexts()
    options = {name: set(context.flags) for context in contexts for name in (context.name, *context.aliases)}
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        if WITHOUT_MESSAGES.match(module):
            continue
        shown_by = next((names for folder, names in TASKS.items() if module.startswith(f"{folder}/")), tuple(options))
        for sentence in filter(lambda words: " " in words, sentences(ast.parse(path.read_text(encoding="utf-8")))):
            named = [((match["task"] or "build",), match["options"]) for match in COMMAND.finditer(sentence)]
            for names, words in [*named, (shown_by, COMMAND.sub("", sentence))]:
                known = OF_OTHER_PROGRAMS.union(*(options[name] for name in names))
                wrong += [f"{option}: {module}: {sentence}" for option in OPTION.findall(words) if option not in known]
    assert wrong == []
