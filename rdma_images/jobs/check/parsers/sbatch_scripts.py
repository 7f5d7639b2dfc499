"""Read sbatch scripts: the directives, and the settings in their lines."""

import re
import shlex
from collections.abc import Mapping
from itertools import pairwise

from rdma_images.jobs.check.job_part import JobPart, LocatedText
from rdma_images.jobs.check.parsers import shell_settings

DIRECTIVE = re.compile(r"^[ \t]*#SBATCH[ \t]+(?P<options>--?[A-Za-z].*)", re.MULTILINE)
FIRST_COMMAND = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)
GRES = re.compile(r"(?:^|,)gpu:(?:[\w.-]+:)?(?P<count>\d+)(?:\(|,|$)")


def is_script(text: str) -> bool:
    """Return whether a text has a directive of sbatch."""
    return DIRECTIVE.search(text) is not None


def begins_with_directive(text: str) -> bool:
    """Return whether a directive stands before the first command."""
    command = FIRST_COMMAND.search(text)
    return is_script(text[: command.start()] if command else text)


def read_script(text: str, name: str) -> JobPart:
    """Return the part of a script; `name` is its file's."""
    lines = list(shell_settings.numbered_lines(text))
    options, settings = _directives(lines), shell_settings.read_settings(lines)
    if directive := options.get("container-image"):
        settings.images.insert(0, LocatedText(directive.text.removeprefix("docker://"), directive.line))
    if directive := options.get("container-env"):
        settings.container_env |= set(directive.text.split(","))
    return JobPart(
        file=name,
        line=min((word.line for word in options.values()), default=1),
        kind="slurm",
        title="sbatch script",
        nodes=options.get("nodes"),
        gpus=_gpus(options),
        images=tuple({image.text: image for image in settings.images}.values()),
        environment=settings.variables,
        command=tuple(line for line in lines if not line.text.lstrip().startswith("#")),
        container_env=frozenset(settings.container_env),
        network="host",
    )


def _directives(lines: list[LocatedText]) -> dict[str, LocatedText]:
    """Return the options of all directives, with their lines."""
    options: dict[str, LocatedText] = {}
    for line in lines:
        match = DIRECTIVE.match(line.text)
        try:
            words = shlex.split(match["options"], comments=True) if match else []
        except ValueError:  # of an open quote
            words = []
        for word, following in pairwise([*words, ""]):
            name, _, value = word.partition("=")
            if name.startswith("-N"):
                name, value = "--nodes", value or name[2:]
            if name.startswith("--"):
                options[name[2:]] = LocatedText(value or following, line.line)
    return options


def _gpus(options: Mapping[str, LocatedText]) -> LocatedText | None:
    """Return the GPUs of each node; None where no number is written."""
    for name, prefix in (("gpus-per-node", "gpu:"), ("gres", "")):
        if (option := options.get(name)) and (match := GRES.search(prefix + option.text)):
            return LocatedText(match["count"], option.line)
    return None
