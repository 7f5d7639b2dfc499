"""`arena submit` command lines."""

import re
import shlex
from collections.abc import Iterator, Sequence

from rdma_images.jobs.check.foreign_job import JobPart, LocatedText

COMMAND = re.compile(r"\barena\s+submit\s+[a-z]+")
MAX_COMMAND_LINES = 200  # lines of a command


def has_command(text: str) -> bool:
    """Return whether a text has such a command line."""
    return COMMAND.search(text) is not None


def parts(text: str, file: str) -> Iterator[JobPart]:
    """Yield a part for each command line."""
    rows = text.split("\n")
    for number, row in enumerate(rows, 1):
        for match in COMMAND.finditer(row):
            yield _part([row[match.start() :], *rows[number : number + MAX_COMMAND_LINES]], number, file)


def _part(rows: Sequence[str], line: int, file: str) -> JobPart:
    """Return the part of a command line that begins the rows, the first of which is in `line`."""
    flags: dict[str, list[LocatedText]] = {}
    key = ""
    for word in _words(rows, line):
        if word.text.startswith("--"):
            key, equals, value = word.text[2:].partition("=")
            flags.setdefault(key, [])
            if equals:
                flags[key].append(LocatedText(value, word.line))
                key = ""
            else:
                flags[key].append(LocatedText("", word.line))
        elif key:
            flags[key][-1] = LocatedText(word.text, flags[key][-1].line)
            key = ""
    selectors, limits, environment = (_settings(flags.get(name, [])) for name in ("selector", "device", "env"))
    first = {key: words[0] for key, words in flags.items() if words}
    return JobPart(
        file,
        line,
        "arena",
        "arena submit",
        instance=selectors.get("node.kubernetes.io/instance-type"),
        nodes=first.get("workers"),
        gpus=first.get("gpus"),
        image=first.get("image"),
        limits=limits,
        environment=environment,
        options=first,
        network="host" if "hostNetwork" in flags else "pod",
    )


def _settings(flags: Sequence[LocatedText]) -> dict[str, LocatedText]:
    """Return the values of flags that are each NAME=VALUE, by the name."""
    pairs = ((flag.text.partition("="), flag.line) for flag in flags)
    return {name: LocatedText(value, line) for (name, _, value), line in pairs}


def _words(rows: Sequence[str], line: int) -> Iterator[LocatedText]:
    """Yield the words of a command line over one or more rows, each with its line."""
    for offset, row in enumerate(rows):
        is_continued = row.rstrip().endswith("\\")
        try:
            words = shlex.split(row.rstrip().rstrip("\\"), comments=True)
        except ValueError:  # a quote that ends in another line: the command that arena is to run, and no option
            return
        yield from (LocatedText(word, line + offset) for word in words)
        if not is_continued:
            return
