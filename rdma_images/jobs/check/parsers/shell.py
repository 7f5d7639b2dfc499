"""A shell's commands as settings of a job: variables, images, and the start of its ranks."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rdma_images.jobs.check.foreign_job import LocatedText, RankStart
from rdma_images.jobs.check.parsers import commands, launches

VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
SRUN_EXPORTS = re.compile(r"--export=(?P<pairs>\S+=\S+)")


@dataclass(frozen=True)
class ShellSettings:
    """The settings of a shell's text that are certain, and not unset later."""

    variables: Mapping[str, LocatedText]
    images: tuple[LocatedText, ...]
    container_env: LocatedText | None
    start: RankStart


def read_settings(
    text: str, first_line: int = 1, initial_values: Mapping[str, str] | None = None, folder: Path | None = None
) -> ShellSettings:
    """Return what the lines of a shell set.

    Args:
        text: the lines of a shell.
        first_line: the number of its first line.
        initial_values: the values of variables that the launcher sets.
        folder: where the scripts are that it starts; None where that is not known.
    """
    shell_text = commands.parse_commands(text, first_line, initial_values)
    variables: dict[str, LocatedText] = {}
    uncertain: set[str] = set()  # what some condition sets
    for command in launches.nested_commands(shell_text):
        settings = dict(_variables(command))
        if not command.is_certain:
            uncertain |= settings.keys()
        elif command.words[0].text == "unset":
            names = {word.text for word in command.words[1:]}
            variables = {name: word for name, word in variables.items() if name not in names}
        else:
            variables |= settings
    variables = {name: word for name, word in variables.items() if name not in uncertain}
    images: dict[str, LocatedText] = {}
    for image in commands.option_values(shell_text, "--container-image"):
        images.setdefault(image.text, image)
    container_env = list(commands.option_values(shell_text, "--container-env"))
    return ShellSettings(
        variables,
        tuple(images.values()),
        container_env[-1] if container_env else None,
        launches.rank_start(shell_text, text, folder),
    )


def line_starts(text: str) -> list[int]:
    """Return where each line of a text begins, for `bisect` to find a position's line."""
    return [0, *(match.end() for match in re.finditer("\n", text))]


def block_start(line: int, text: str) -> int:
    """Return the line of the first line of a YAML text whose key is in `line`."""
    return line + 1 if "\n" in text else line


def _variables(command: commands.Command) -> Iterator[tuple[str, LocatedText]]:
    """Yield the variables that a command sets for itself or for what runs after it."""
    words = command.words
    start = next((n for n, word in enumerate(words) if not commands.ASSIGNMENT.fullmatch(word.text)), len(words))
    settings = list(words[: start if start < len(words) or not command.is_certain else 0])
    if words[0].text == "export" or [word.text for word in words[:2]] == ["declare", "-x"]:
        settings += words[1:]
    settings += [word for before, word in pairwise(words) if before.text == "-x"]
    for word in settings:
        match = commands.ASSIGNMENT.fullmatch(word.text)
        if match and VARIABLE.fullmatch(match["name"]):
            yield match["name"], LocatedText(match["value"].strip("'\""), word.line)
    for word in words:
        if match := SRUN_EXPORTS.fullmatch(word.text):
            for pair in match["pairs"].split(","):
                name, equals, value = pair.partition("=")
                if equals and name.isupper():
                    yield name, LocatedText(value, word.line)
