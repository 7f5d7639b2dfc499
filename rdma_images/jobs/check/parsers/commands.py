"""The commands of a shell's text as a shell reads them: words, quotes, arrays, heredocs and lines that go on."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rdma_images.jobs.check.foreign_job import LocatedText, ShellFault

MAX_TEXT_LENGTH = 1 << 18  # characters of a text that are read
BASH_SECONDS = 10  # for bash to read a text without running it
OPEN_QUOTE = re.compile(rb"unexpected EOF while looking for matching [`'][\"']")
MAX_WORD_LENGTH = 4096  # characters of a word whose variables are put in place
BLANK_BEHIND = re.compile(r"\\[ \t]+(?=\n)")
HEREDOC_MARK = "<<"  # first word of a command and its heredoc, which is the last one
HEREDOC = re.compile(r"<<-?[ \t]*(?P<quote>['\"]?)(?P<end>[\w.-]+)(?P=quote)")
# A heredoc that `cat` puts in the place of a word.
HEREDOC_VALUE = re.compile(
    r"\s*\$\(\s*cat\s*<<-?[ \t]*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)[ \t]*\n(?P<body>.*\n)[ \t]*(?P=end)\s*\)\s*",
    re.DOTALL,
)
PLAIN = re.compile(r"[^\s'\"\\$`;&|()<>]+")
REFERENCE = re.compile(r"\$(?:\{(?P<braced>\w+)(?:\[[@*]\])?\}|(?P<plain>\w+))")
DEFAULT = re.compile(r"\$\{\w+:?-(?P<default>[^}$]*)\}")
FALLBACK = re.compile(r"\$\{(?P<name>\w+):?=(?P<value>[^{}]*)\}")
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<plus>\+?)=(?P<value>.*)", re.DOTALL)
NAME = re.compile(r"[A-Za-z_]\w*")
ESAC = re.compile(r"esac\b")
# Words before a command, which change nothing of what it starts.
COMMAND_PREFIXES = ("then", "do", "else", "{", "!", "time", "exec", "nohup")
DECLARING_COMMANDS = ("export", "declare", "readonly", "local", "typeset")
READING_COMMANDS = ("for", "read", "mapfile", "readarray", "getopts", "select")
TEST_COMMANDS = ("[", "[[", "test")
PRINTING_COMMANDS = ("echo", "printf", "cat")
# A condition that only says which rank or node does something: what it guards happens in every run of the job.
ABOUT_RANKS = re.compile(r"RANK|PROCID|NODEID|hostname|head|master", re.IGNORECASE)
CLOSING = {"(": ")", "{": "}"}
OPTION = re.compile(r"--?[A-Za-z]")
ARITHMETIC = re.compile(r"\$\(\((?P<formula>\s*\w{1,40}(?:\s*[*/]\s*\w{1,40}){0,5}\s*)\)\)")
FACTOR = re.compile(r"([*/]?)\s*(\w+)")
SHELLS = re.compile(r"#!.*\b(?:ba|da|z|k)?sh\b")
VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")  # a variable's name, as no program has it
PLAIN_VALUE = re.compile(r"\d[\d.:]*")
TYPOGRAPHIC = re.compile(r"[\u2012-\u2015\u2212][\w-]|.*[\u201c\u201d\u2018\u2019\u00a0]")

Value = str | tuple["ShellWord", ...] | None  # of a variable: a text, an array's words, or not known


@dataclass(frozen=True)
class ShellWord:
    """A word without its quotes, its line, and the quote that was around all of it."""

    text: str
    line: int
    quote: str = ""


@dataclass(frozen=True)
class Command:
    """A simple command, with its heredoc last; `is_certain`: every run executes it somewhere."""

    words: tuple[ShellWord, ...]
    is_certain: bool
    values: Mapping[str, Value]  # of the variables where it begins

    @property
    def line(self) -> int:
        """Return the line of its first word."""
        return self.words[0].line


@dataclass(frozen=True)
class ShellText:
    """The commands of a text, with the variables that it sets in place, and its faults."""

    commands: tuple[Command, ...]
    faults: tuple[ShellFault, ...]
    assigned: frozenset[str]  # the variables that the text sets anywhere


def parse_commands(text: str, first_line: int = 1, initial_values: Mapping[str, Value] | None = None) -> ShellText:
    """Return the commands of a shell's text.

    Args:
        text: the lines of a shell.
        first_line: the number of its first line.
        initial_values: the values of variables that a text around this one sets.
    """
    if text.startswith("#!") and not SHELLS.match(text):
        return ShellText((), (), frozenset())
    lexer = _Lexer(text[:MAX_TEXT_LENGTH], first_line)
    values = dict(initial_values or {})
    commands: list[Command] = []
    faults: list[ShellFault] = []
    assigned: set[str] = set()
    last_line = 0
    for words, is_certain in lexer.commands():
        faults += _faults(words, last_line, lexer)
        last_line = words[-1].line
        before = values.copy()
        plain = tuple(
            word for word in words if not (words[0].text in DECLARING_COMMANDS and not ASSIGNMENT.fullmatch(word.text))
        )
        settings = [(match, word) for word in plain if (match := ASSIGNMENT.fullmatch(word.text))]
        assigned.update(match["name"] for match, _ in settings)
        if settings and len(settings) == len(plain):
            for match, word in settings:
                values[match["name"]] = _assigned_value(match, word, values) if is_certain else None
        elif words[0].text in READING_COMMANDS:
            names = [word.text for word in words[1:] if NAME.fullmatch(word.text)]
            assigned.update(names)
            values.update(dict.fromkeys(names))
        elif words[0].text == ":":
            for match in filter(None, (FALLBACK.fullmatch(word.text) for word in words)):
                assigned.add(match["name"])
                values.setdefault(match["name"], expand(match["value"], values) if is_certain else None)
        commands.append(Command(tuple(_expand_words(words, before)), is_certain, before))
    faults += [
        ShellFault(
            LocatedText("\\", line),
            "a blank follows the backslash at the end of the line, so the command ends there",
            "delete the blank: the backslash has to be the last character of the line",
        )
        for line in lexer.blanks
    ]
    if quote := lexer.open_quote:
        problem = f"the quote {quote.text} is not closed: a shell ends here with an error"
        fix = f"close it; an apostrophe or {quote.text} in a text, here or above, needs a backslash before it"
        faults = [ShellFault(quote, problem, fix)]
    return ShellText(tuple(commands), tuple(faults) if lexer.is_whole or quote else (), frozenset(assigned))


class NestedReader:
    """Parse the texts that a text gives to other shells, up to a length of all together."""

    def __init__(self) -> None:
        self._remaining_length = MAX_TEXT_LENGTH

    def read(self, text: str, first_line: int, initial_values: Mapping[str, Value]) -> ShellText:
        """Return the commands of a text; none where too much was read before."""
        self._remaining_length -= len(text)
        return parse_commands(text if self._remaining_length >= 0 else "", first_line, initial_values)


@dataclass
class _Lexer:
    text: str
    line: int
    position: int = 0
    words: list[ShellWord] = field(default_factory=list)
    heredocs: list[tuple[str, str, list[ShellWord]]] = field(default_factory=list)  # end, quote, words of the command
    blanks: list[int] = field(default_factory=list)  # lines that end with a backslash and blanks, before another
    conditions: list[bool] = field(default_factory=list)  # of each `if` and `case` around: whether it is about ranks
    patterns: list[bool] = field(default_factory=list)  # of each `case` around: whether a pattern comes next
    in_test: bool = False
    is_guarded: bool = False  # whether a test decides about the command that comes next
    is_whole: bool = True  # whether every quote is closed
    open_quote: LocatedText | None = None  # the one that bash does not find closed, either

    def commands(self) -> Iterator[tuple[tuple[ShellWord, ...], bool]]:
        """Yield each command's words, and whether it is certain; end at a quote that stays open."""
        while self.position < len(self.text):
            character = self.text[self.position]
            if self.patterns and self.patterns[-1] and not character.isspace():
                self._skip_pattern()
            elif character in " \t\r\f\v":
                self.position += 1
            elif character == "\n":
                yield from self._newline()
            elif character == "#":
                self._skip_line()
            elif self.text.startswith("\\\n", self.position):
                self.position += 2
                self.line += 1
            elif blank := BLANK_BEHIND.match(self.text, self.position):
                if self.text[blank.end() + 1 :].partition("\n")[0].strip():
                    self.blanks.append(self.line)
                self.position = blank.end()
            elif character in ";&|()" and not self.text.startswith("&>", self.position):
                yield from self._separator()
            elif heredoc := HEREDOC.match(self.text, self.position):
                self.heredocs.append((heredoc["end"], heredoc["quote"], self.words))
                self.position = heredoc.end()
            elif not self._word():
                self.is_whole = False
                if self.open_quote:  # the command goes as far as it is known
                    self.is_guarded = True
                    break
                return
            elif self.words[0].text == "case" and len(self.words) > 2 and self.words[-1].text == "in":
                yield from self._finish_command()
        yield from self._finish_command()

    def _separator(self) -> Iterator[tuple[tuple[ShellWord, ...], bool]]:
        """Pass over what stands between commands, and yield the command before it."""
        if self.in_test:
            self.position += 1
            return
        head = self.words[0].text if self.words else ""
        yield from self._finish_command()
        if head:
            is_joined = self.text.startswith(("&&", "||"), self.position)
            self.is_guarded = is_joined and (self.is_guarded or head in TEST_COMMANDS)
        is_arithmetic = self.text.startswith("((", self.position)
        stop = _closing_position(self.text, self.position) if is_arithmetic else None
        if self.text.startswith(";;", self.position) and self.patterns:
            self.patterns[-1] = True
            stop = self.position + 2
        self.line += self.text.count("\n", self.position, stop or self.position)
        self.position = stop or self.position + 1

    def _newline(self) -> Iterator[tuple[tuple[ShellWord, ...], bool]]:
        """Pass over a line's end and the heredocs behind it, and yield the command before it."""
        if not self.in_test:
            has_ended = bool(self.words)
            yield from self._finish_command()
            self.is_guarded = self.is_guarded and not has_ended
        self.position += 1
        self.line += 1
        heredocs, self.heredocs = self.heredocs, []
        for delimiter, quote, words in heredocs:
            match = re.compile(rf"^[ \t]*{re.escape(delimiter)}[ \t]*$", re.MULTILINE).search(self.text, self.position)
            body_stop, stop = match.span() if match else (len(self.text), len(self.text))
            body = ShellWord(self.text[self.position : body_stop], self.line, quote or '"')
            yield (ShellWord(HEREDOC_MARK, self.line), *words, body), self._is_certain()
            self.line += self.text.count("\n", self.position, stop)
            self.position = stop

    def _skip_line(self) -> None:
        line_stop = self.text.find("\n", self.position)
        self.position = len(self.text) if line_stop < 0 else line_stop

    def _skip_pattern(self) -> None:
        if self.text[self.position] == "#":
            self._skip_line()
            return
        self.patterns[-1] = False
        if not ESAC.match(self.text, self.position):
            pattern_stop = self.text.find(")", self.position)
            stop = len(self.text) if pattern_stop < 0 else pattern_stop + 1
            self.line += self.text.count("\n", self.position, stop)
            self.position = stop

    def _finish_command(self) -> Iterator[tuple[tuple[ShellWord, ...], bool]]:
        """Yield the words that were collected as a command, and whether it certainly runs; nothing without words."""
        words, self.words, self.in_test = self.words, [], False
        while words and words[0].text in COMMAND_PREFIXES and not words[0].quote:
            words = words[1:]
        if not words:
            return
        head = words[0].text
        is_certain = self._is_certain()
        about_ranks = head in ("if", "elif") and ABOUT_RANKS.search(" ".join(word.text for word in words)) is not None
        if head in ("if", "case"):
            self.conditions.append(is_certain and about_ranks)
            if head == "case":
                self.patterns.append(True)
        elif head == "elif" and self.conditions:
            self.conditions[-1] = self.conditions[-1] and about_ranks
        elif head in ("fi", "esac"):
            if self.conditions:
                self.conditions.pop()
            if head == "esac" and self.patterns:
                self.patterns.pop()
        else:
            yield tuple(words), is_certain

    def _is_certain(self) -> bool:
        """Return whether every run executes what comes next, and the conditions around it."""
        return (not self.conditions or self.conditions[-1]) and not self.is_guarded

    def _word(self) -> bool:
        """Read a word; False where a quote, a parenthesis or a brace is not closed."""
        line, start = self.line, self.position
        parts: list[str] = []
        while self.position < len(self.text):
            character = self.text[self.position]
            if character in " \t\r\f\v\n;|)" or self.text.startswith("\\\n", self.position):
                break
            if (character == "&" and not self._is_redirect()) or BLANK_BEHIND.match(self.text, self.position):
                break
            if plain := PLAIN.match(self.text, self.position):
                parts.append(plain[0])
                self.position = plain.end()
            elif character == "\\":
                parts.append(self.text[self.position : self.position + 2])
                self.position += 2
            elif character in "'\"`(" or self.text.startswith(("$(", "${"), self.position):
                stop = _closing_position(self.text, self.position)
                if stop is None:
                    if character in "'\"" and _is_open(self.text):
                        self.open_quote = LocatedText(character, line)
                    self.position = len(self.text)
                    return False
                part = self.text[self.position : stop]
                self.line += part.count("\n")
                self.position = stop
                if character in "'\"":
                    part = part[1:-1]
                parts.append(part if character == "'" else part.replace("\\\n", ""))
            else:
                parts.append(character)
                self.position += 1
        raw = self.text[start : self.position]
        is_quoted = raw[0] in "'\"" and _closing_position(raw, 0) == len(raw)
        self.words.append(ShellWord("".join(parts), line, raw[0] if is_quoted else ""))
        self.in_test = (self.in_test or raw == "[[") and raw != "]]"
        return True

    def _is_redirect(self) -> bool:
        return self.text[self.position - 1 : self.position] in ("<", ">") or self.text.startswith("&>", self.position)


def _is_open(text: str) -> bool:
    """Return whether bash finds the end of a text within a quote.

    Returns:
        False for one that was cut, and without bash.
    """
    if len(text) == MAX_TEXT_LENGTH or not (bash := shutil.which("bash")):
        return False
    options: dict[str, Any] = {"env": {"LC_ALL": "C"}, "timeout": BASH_SECONDS, "check": False, "capture_output": True}
    try:
        completed = subprocess.run([bash, "-n"], input=text.encode(errors="replace"), **options)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return OPEN_QUOTE.search(completed.stderr) is not None


def _closing_position(text: str, start: int) -> int | None:
    """Return the end of the quote, parenthesis or expansion that begins at `start`.

    Returns:
        None where it is not closed.
    """
    if text[start] == "'":
        stop = text.find("'", start + 1)
        return None if stop < 0 else stop + 1
    position = start + 1 if text[start] == "$" else start
    stack = [CLOSING.get(text[position], text[position])]
    position += 1
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == stack[-1]:
            stack.pop()
            if not stack:
                return position + 1
        elif character == "$" and text[position + 1 : position + 2] in CLOSING:
            position += 1
            stack.append(CLOSING[text[position]])
        elif stack[-1] != '"' and character in '"`':
            stack.append(character)
        elif stack[-1] == ")" and character == "(":
            stack.append(")")
        elif stack[-1] == ")" and (character == "'" or (character == "#" and text[position - 1] in " \t\n(")):
            stop = text.find("'" if character == "'" else "\n", position + 1)
            if stop < 0:
                return None
            position = stop if character == "'" else stop - 1
        position += 1
    return None


def _assigned_value(match: re.Match[str], word: ShellWord, values: Mapping[str, Value]) -> Value:
    """Return the value of an assignment; None for one that is added to an unknown one."""
    value, before = match["value"], values.get(match["name"], ())
    if value.startswith("(") and value.endswith(")"):
        inner = _Lexer(value[1:-1], word.line).commands()
        items = tuple(item for words, _ in inner for item in _expand_words(words, values))
        return items if not match["plus"] else (*before, *items) if isinstance(before, tuple) else None
    text = expand(value, values)
    if match["plus"]:
        return before + text if isinstance(before, str) else None
    return text


def expand(text: str, values: Mapping[str, Value]) -> str:
    """Return a text with known variables in place; the others stay as they are written."""

    def value(match: re.Match[str]) -> str:
        substitute = values.get(match["braced"] or match["plain"])
        return substitute if isinstance(substitute, str) else match[0]

    if "$" not in text or len(text) > MAX_WORD_LENGTH:
        return text
    return ARITHMETIC.sub(lambda match: _arithmetic_result(match, values), REFERENCE.sub(value, text)[:MAX_WORD_LENGTH])


def expand_defaults(text: str) -> str:
    """Return a text with the default in the place of each variable that has one."""
    return DEFAULT.sub(lambda match: match["default"].strip("'\""), text)


def option_values(text: ShellText, name: str) -> Iterator[LocatedText]:
    """Yield an option's values in commands that are certain, with variables' defaults."""
    for command in text.commands:
        for word, following in pairwise((*command.words, ShellWord("", 0)) if command.is_certain else ()):
            option, equals, value = word.text.partition("=")
            if option == name and (equals or following.text):
                yield LocatedText(expand_defaults(value if equals else following.text), word.line)


def _arithmetic_result(match: re.Match[str], values: Mapping[str, Value]) -> str:
    """Return the product or quotient of known numbers; the text itself for anything else."""
    number = None
    for operator, operand in FACTOR.findall(match["formula"]):
        factor = values.get(operand, operand)
        if not isinstance(factor, str) or not factor.isdecimal() or (operator == "/" and not int(factor)):
            return match[0]
        number = int(factor) if number is None else number * int(factor) if operator == "*" else number // int(factor)
    return match[0] if number is None else str(number)


def _expand_words(words: tuple[ShellWord, ...], values: Mapping[str, Value]) -> Iterator[ShellWord]:
    """Yield words with known variables in place, several where a shell makes several of one."""
    for word in words:
        reference = REFERENCE.fullmatch(word.text)
        substitute = values.get(reference["braced"] or reference["plain"]) if reference and word.quote != "'" else None
        heredoc = HEREDOC_VALUE.fullmatch(word.text)
        if word.quote == "'" or (heredoc and heredoc["quote"]):
            yield word
        elif isinstance(substitute, tuple):
            yield from substitute
        elif isinstance(substitute, str) and not word.quote:
            yield from (ShellWord(item, word.line) for item in _split_words(substitute))
        else:
            yield ShellWord(expand(word.text, values), word.line, word.quote)


def _split_words(text: str) -> list[str]:
    """Return the words that a shell makes of a variable's value; `$(…)` is in one of them."""
    if "$(" not in text and "`" not in text:
        return text.split()
    return [word.text for words, _ in _Lexer(text.replace("\n", " "), 1).commands() for word in words]


def _faults(words: tuple[ShellWord, ...], previous_line: int, lexer: _Lexer) -> Iterator[ShellFault]:
    """Yield what is broken at a command's beginning.

    `previous_line` is where the one before ends, 0 for none.
    """
    head = words[0]
    word = LocatedText(head.text, head.line)
    if previous_line and OPTION.match(head.text) and not head.quote and previous_line not in lexer.blanks:
        problem = f"a command begins with {head.text[:40]}: the one before ended in line {previous_line}"
        fix = f"end line {previous_line} with a backslash"
        if head.line - previous_line > 1:
            fix = "leave no empty line and no comment between the lines of a command"
        yield ShellFault(word, problem, fix)
    names = words[1:] if head.text == "export" else words
    if len(names) > 1 and VARIABLE_NAME.fullmatch(names[0].text) and names[1].text == "=" and not names[1].quote:
        yield ShellFault(
            word, f"{names[0].text} is not set: a blank stands before the =", "write no blank around the ="
        )
    elif len(names) == 2 and names[0].text.endswith("=") and PLAIN_VALUE.fullmatch(names[1].text):
        yield ShellFault(word, f"{names[0].text[:-1]} is empty: a blank follows the =", "write no blank around the =")
    for item in () if head.text in (*PRINTING_COMMANDS, HEREDOC_MARK) else words:
        if not item.quote and TYPOGRAPHIC.match(item.text):
            problem = f"{item.text[:40]} has a typographic dash, quote or blank, as word processors write it"
            yield ShellFault(LocatedText(item.text, item.line), problem, "type it anew: -, \", ' or a plain blank")
