"""Settings in a shell's lines: `export NAME=value`, `NAME=value command`, and options of srun and mpirun.

It is no shell: what a condition, a loop or a function sets is not known, and neither is what a program prints.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rdma_images.jobs.check.job_part import LocatedText

MAX_LENGTH = 1 << 17  # characters of a text that are read
MAX_LINES = 4000
MAX_LINE_LENGTH = 2048
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
REFERENCE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::?-(?P<default>[^{}$]*))?\}|(?P<plain>\w+))")
SPECIAL = re.compile(r"['\"\\#;&|]")
SEPARATOR = re.compile(r"[;&|]+")
COMMAND_PREFIXES = ("then", "do", "else", "time", "exec", "nohup", "!")
OPENING = re.compile(r"if|case|for|while|until|select|function|\{|\w+\(\)")
CLOSING = ("fi", "esac", "done", "}")
EXPORTS = ("export", "declare", "typeset")


@dataclass
class ShellSettings:
    """The settings of a text that are certain, and not unset later."""

    variables: dict[str, LocatedText] = field(default_factory=dict)  # that its commands get
    images: list[LocatedText] = field(default_factory=list)  # of pyxis
    container_env: set[str] = field(default_factory=set)  # variables that win over an image's own


def numbered_lines(text: str, key_line: int = 0) -> Iterator[LocatedText]:
    """Yield the lines of a text; of a YAML value, `key_line` is the line where its key stands."""
    lines = text[:MAX_LENGTH].split("\n", MAX_LINES)[:MAX_LINES]
    first_line = key_line if key_line and len(lines) == 1 else key_line + 1
    for number, line in enumerate(lines, first_line):
        yield LocatedText(line[:MAX_LINE_LENGTH], number)


def read_settings(lines: Iterable[LocatedText]) -> ShellSettings:
    """Return what the lines of a shell, or the words of one command, set."""
    settings = ShellSettings()
    values: dict[str, str] = {}
    uncertain: set[str] = set()  # what some condition sets
    before = ""  # the last word of the command before: in a manifest each word may have a line
    for words, is_certain in _commands(lines):
        words = [LocatedText(_expand(word.text, values), word.line) for word in words]
        for word, is_exported in _assignments(words, before):
            name, _, value = word.text.partition("=")
            if not is_certain:
                uncertain.add(name)
                continue
            values[name] = value
            if (is_exported or name in settings.variables) and VARIABLE.fullmatch(name):
                settings.variables[name] = LocatedText(value, word.line)
        for word in words[1:] if words[0].text in (*EXPORTS, "unset") else ():
            if words[0].text == "unset":
                settings.variables.pop(word.text, None)
            elif word.text in values:
                settings.variables[word.text] = LocatedText(values[word.text], word.line)
        for word, following in zip(words, [*words[1:], LocatedText("", 0)], strict=True):
            option, equals, value = word.text.partition("=")
            value = value if equals else following.text
            if option == "--container-image" and value:
                settings.images.append(LocatedText(value.removeprefix("docker://"), word.line))
            elif option == "--container-env":
                settings.container_env |= set(value.split(","))
        before = words[-1].text
    settings.variables = {name: word for name, word in settings.variables.items() if name not in uncertain}
    return settings


def _commands(lines: Iterable[LocatedText]) -> Iterator[tuple[list[LocatedText], bool]]:
    """Yield the words of each command, and whether it is certain; a backslash joins a line with the next one."""
    depth = 0  # of conditions, loops and functions
    words: list[LocatedText] = []
    length = 0
    for line in lines:
        length += len(line.text)
        if length > MAX_LENGTH:
            return
        words += [LocatedText(word, line.line) for word in _split(line.text.removesuffix("\\"))]
        if line.text.endswith("\\"):
            continue
        is_joined = False  # whether it depends on the command before, by && or ||
        command: list[LocatedText] = []
        for word in (*words, LocatedText(";", line.line)):
            if not SEPARATOR.fullmatch(word.text):
                if command or word.text not in COMMAND_PREFIXES:
                    command.append(word)
                continue
            head = command[0].text if command else ""
            if OPENING.fullmatch(head):
                depth += 1
            elif head in CLOSING:
                depth = max(0, depth - 1)
            elif head:
                yield command, depth == 0 and not is_joined
            is_joined, command = word.text in ("&&", "||"), []
        words = []


def _split(line: str) -> list[str]:
    """Return the words of a line, with what separates commands as words of their own."""
    if not SPECIAL.search(line):
        return line.split()
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quote that goes on in the next line
        words = line.replace('"', " ").replace("'", " ").split()
    comment = next((n for n, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def _assignments(words: list[LocatedText], before: str) -> Iterator[tuple[LocatedText, bool]]:
    """Yield the words NAME=value of a command, and whether a program gets the variable."""
    start = 1 if words[0].text == "env" else 0
    stop = next((n for n, word in enumerate(words[start:], start) if not ASSIGNMENT.fullmatch(word.text)), len(words))
    is_lone = stop == len(words) and start == 0 and before != "-x"
    yield from ((word, not is_lone) for word in words[start:stop])
    for previous, word in zip(words[max(stop - 1, 0) :], words[max(stop, 1) :], strict=False):
        if ASSIGNMENT.fullmatch(word.text) and (previous.text == "-x" or words[0].text in EXPORTS):
            yield word, True
        for pair in word.text.removeprefix("--export=").split(",") if word.text.startswith("--export=") else ():
            if ASSIGNMENT.fullmatch(pair):
                yield LocatedText(pair, word.line), True


def _expand(text: str, values: Mapping[str, str]) -> str:
    """Return a word with the values of its variables, as far as they are known."""

    def value(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"]
        return values.get(name, match[0] if match["default"] is None else match["default"])

    return REFERENCE.sub(value, text)[:MAX_LINE_LENGTH] if "$" in text else text
