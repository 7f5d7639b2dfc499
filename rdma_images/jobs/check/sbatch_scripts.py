"""Read sbatch scripts, and what plain lines of a shell set in them and in the commands of pods and tasks."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from rdma_images.jobs.check.node_group import LocatedText, NodeGroup

DIRECTIVE = re.compile(r"^[ \t]*#SBATCH[ \t]+(?P<options>--?[A-Za-z].*)", re.MULTILINE)
FIRST_COMMAND = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)
GRES = re.compile(r"(?:^|,)gpu:(?:[\w.-]+:)?(?P<count>\d+)(?:\(|,|$)")
INSTANCE = re.compile(r"[\w.-]+\.(?:\w*large|metal)")  # in a constraint's expression, and in a list of partitions
SHORT_OPTIONS = {"-N": "--nodes", "-C": "--constraint", "-p": "--partition"}
MAX_LENGTH = 1 << 17  # characters of a text that are read
MAX_LINES = 4000
MAX_LINE_LENGTH = 2048
ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=.*", re.DOTALL)
SPECIAL = re.compile(r"['\"\\#;&|]")


@dataclass
class ShellSettings:
    """The settings of shell lines that run unconditionally."""

    variables: dict[str, LocatedText] = field(default_factory=dict)  # that its commands get
    images: list[LocatedText] = field(default_factory=list)  # of pyxis
    container_env: set[str] = field(default_factory=set)  # variables that win over an image's own


def is_script(text: str) -> bool:
    """Return whether a text has a directive of sbatch."""
    return DIRECTIVE.search(text) is not None


def begins_with_directive(text: str) -> bool:
    """Return whether a directive stands before the first command."""
    command = FIRST_COMMAND.search(text)
    return is_script(text[: command.start()] if command else text)


def read_script(text: str, name: str) -> NodeGroup:
    """Return the group of a script; `name` is its file's."""
    lines = list(numbered_lines(text))
    matches = ((DIRECTIVE.match(line.text), line.line) for line in lines)
    directives = [LocatedText(match["options"], number) for match, number in matches if match]
    options, settings = _options(directives), read_settings([*directives, *lines])
    return NodeGroup(
        file=name,
        line=min((word.line for word in options.values()), default=1),
        kind="slurm",
        title="sbatch script",
        instance=_instance(options),
        nodes=options.get("nodes"),
        gpus=_gpus(options),
        images=tuple({image.text: image for image in settings.images}.values()),
        environment=settings.variables,
        command=tuple(line for line in lines if not line.text.lstrip().startswith("#")),
        container_env=frozenset(settings.container_env),
        network="host",
    )


def _options(directives: list[LocatedText]) -> dict[str, LocatedText]:
    """Return the options of all directives, with their lines."""
    options: dict[str, LocatedText] = {}
    for line in directives:
        try:
            words = shlex.split(line.text, comments=True)
        except ValueError:  # of an open quote
            words = []
        for word, following in pairwise([*words, ""]):
            name, _, value = word.partition("=")
            if name[:2] in SHORT_OPTIONS:
                name, value = SHORT_OPTIONS[name[:2]], value or name[2:]
            if name.startswith("--"):
                options[name[2:]] = LocatedText(value or following, line.line)
    return options


def _instance(options: Mapping[str, LocatedText]) -> LocatedText | None:
    """Return the only instance type that the constraint, or else the partition, names."""
    for name in ("constraint", "partition"):
        if (option := options.get(name)) and len(types := INSTANCE.findall(option.text)) == 1:
            return LocatedText(types[0], option.line)
    return None


def _gpus(options: Mapping[str, LocatedText]) -> LocatedText | None:
    """Return the GPUs of each node; None where no number is written."""
    for name, prefix in (("gpus-per-node", "gpu:"), ("gres", "")):
        if (option := options.get(name)) and (match := GRES.search(prefix + option.text)):
            return LocatedText(match["count"], option.line)
    return None


def numbered_lines(text: str, key_line: int = 0) -> Iterator[LocatedText]:
    """Yield the lines of a text; of a YAML value, `key_line` is the line where its key stands."""
    lines = text[:MAX_LENGTH].split("\n", MAX_LINES)[:MAX_LINES]
    first_line = key_line if key_line and len(lines) == 1 else key_line + 1
    for number, line in enumerate(lines, first_line):
        yield LocatedText(line[:MAX_LINE_LENGTH], number)


def read_settings(lines: Iterable[LocatedText]) -> ShellSettings:
    """Return what the lines of a shell, or the words of one command, set.

    It is no shell: a variable that an indented line sets, as in a condition, a loop or a function, is left out, and
    `$NAME` stays as it is.
    """
    settings = ShellSettings()
    uncertain: set[str] = set()
    previous, is_continued, length = "", False, 0  # a word of a pod's command stands for a line
    for line in lines:
        length += len(line.text)
        words = _split(line.text.removesuffix("\\")) if length <= MAX_LENGTH else []
        for assignment in _exported(words, previous):
            name, _, value = assignment.partition("=")
            settings.variables[name] = LocatedText(value, line.line)
            if line.text[:1].isspace() and not is_continued:
                uncertain.add(name)
        if words[:1] == ["unset"]:
            uncertain |= set(words)
        for word, following in pairwise([*words, ""]):
            option, equals, value = word.partition("=")
            value = value if equals else following
            if option == "--container-image" and value:
                settings.images.append(LocatedText(value.removeprefix("docker://"), line.line))
            elif option == "--container-env":
                settings.container_env |= set(value.split(","))
        previous, is_continued = words[-1] if words else "", line.text.endswith("\\")
    settings.variables = {name: word for name, word in settings.variables.items() if name not in uncertain}
    return settings


def _exported(words: list[str], previous: str) -> Iterator[str]:
    """Yield the words NAME=value of a line whose variable a program gets; `previous` is the word before them."""
    program = next((number for number, word in enumerate(words) if not ASSIGNMENT.fullmatch(word)), 0)
    for number, word in enumerate(words):
        before = words[number - 1] if number else previous
        if word.startswith("--export="):
            yield from filter(ASSIGNMENT.fullmatch, word.removeprefix("--export=").split(","))
        elif ASSIGNMENT.fullmatch(word) and (number < program or before == "-x" or words[0] in ("export", "env")):
            yield word


def _split(line: str) -> list[str]:
    """Return the words of a line without its comment, with what separates commands as words of their own."""
    if not SPECIAL.search(line):
        return line.split()
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quote that goes on in the next line
        words = line.replace('"', " ").replace("'", " ").split()
    comment = next((number for number, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]
