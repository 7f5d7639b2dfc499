"""sbatch scripts and `arena submit` command lines."""

import re
import shlex
from collections.abc import Iterator

from rdma_images.jobs.check.foreign_job import Piece, Word

ARENA = re.compile(r"\barena\s+submit\s+(?P<what>[a-z]+)")
DIRECTIVE = re.compile(r"#SBATCH\s+(?P<option>--?[A-Za-z-]+)(?:[=\s]\s*(?P<value>\S+))?")
EXPORT = re.compile(r"^\s*export\s+(?P<pairs>.+)$")
PAIR = re.compile(r"(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>'[^']*'|\"[^\"]*\"|[^\s;]*)")
CONTAINER = re.compile(r"--container-image[= ](?P<image>[^\s\"')]+)")
CONTAINER_ENV = re.compile(r"--container-env[= ](?P<names>[A-Z0-9_,]+)")


def is_script(text: str) -> bool:
    """Whether a text is an sbatch script or has an arena command line."""
    return bool(DIRECTIVE.search(text) or ARENA.search(text))


def pieces(text: str, name: str) -> Iterator[Piece]:
    """The pieces of a script."""
    if DIRECTIVE.search(text):
        yield _sbatch(text, name)
    for found in ARENA.finditer(text):
        yield _arena(text, found.start(), name)


def _sbatch(text: str, name: str) -> Piece:
    options: dict[str, Word] = {}
    environment: dict[str, Word] = {}
    settings: dict[str, Word] = {}
    image = None
    for number, line in enumerate(text.splitlines(), 1):
        if found := DIRECTIVE.match(line.strip()):
            options[found["option"]] = Word(found["value"] or "", number)
        elif found := EXPORT.match(line):
            for pair in PAIR.finditer(found["pairs"]):
                environment[pair["name"]] = Word(pair["value"].strip("'\""), number)
        if found := CONTAINER.search(line):
            image = Word(found["image"].removeprefix("docker://"), number)
        if found := CONTAINER_ENV.search(line):
            settings["container-env"] = Word(found["names"], number)
    return Piece(
        name,
        min((word.line for word in options.values()), default=1),
        "slurm",
        "sbatch script",
        nodes=options.get("--nodes") or options.get("-N"),
        gpus=options.get("--gpus-per-node"),
        image=image,
        environment=environment,
        settings={**{key.lstrip("-"): word for key, word in options.items()}, **settings},
    )


def _arena(text: str, start: int, name: str) -> Piece:
    line = text.count("\n", 0, start) + 1
    flags: dict[str, list[Word]] = {}
    key = ""
    for word in _words(text[start:], line):
        if word.text.startswith("--"):
            key, equals, value = word.text[2:].partition("=")
            flags.setdefault(key, [])
            if equals:
                flags[key].append(Word(value, word.line))
                key = ""
            else:
                flags[key].append(Word("", word.line))
        elif key:
            flags[key][-1] = Word(word.text, flags[key][-1].line)
            key = ""
    selectors = {one.text.partition("=")[0]: one for one in flags.get("selector", [])}
    instance = selectors.get("node.kubernetes.io/instance-type")
    limits = {one.text.partition("=")[0]: Word(one.text.partition("=")[2], one.line) for one in flags.get("device", [])}
    environment = {
        one.text.partition("=")[0]: Word(one.text.partition("=")[2], one.line) for one in flags.get("env", [])
    }
    first = {key: found[0] for key, found in flags.items() if found}
    return Piece(
        name,
        line,
        "arena",
        "arena submit",
        instance=Word(instance.text.partition("=")[2], instance.line) if instance else None,
        nodes=first.get("workers"),
        gpus=first.get("gpus"),
        image=first.get("image"),
        limits=limits,
        environment=environment,
        settings=first,
    )


def _words(text: str, line: int) -> Iterator[Word]:
    """The words of a command line that may go on over several lines, each with the line that it stands in."""
    for offset, row in enumerate(text.split("\n")):
        goes_on = row.rstrip().endswith("\\")
        try:
            parts = shlex.split(row.rstrip().rstrip("\\"), comments=True)
        except ValueError:  # a quote that ends in another line: the command that arena is to run, and no option
            return
        yield from (Word(part, line + offset) for part in parts)
        if not goes_on:
            return
