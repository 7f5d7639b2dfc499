"""The parser of the command line: options and their types, suggestions for unknown words, and `--list`.

invoke parses. It shows a traceback for a word where a number belongs, names no near word for an unknown task or option,
and takes any letter of an option's name as its short form; what differs from that is here.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from invoke import program
from invoke.exceptions import Exit, ParseError
from invoke.parser import Parser, ParseResult
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.program import Program
from invoke.tasks import Task

from rdma_images.cli import output
from rdma_images.core import exit_codes, files, plain
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND, INSTALLED, MATRIX

# The short form of an option, the same in every task.
SHORT = {"target": "t", "all": "a", "set": "s", "json": "j", "rehearse": "r", "image": "i"}
MISSING = re.compile(r"did not receive required positional arguments: (?P<names>.+)")
VALUELESS = re.compile(r"Flag <\w+: (?P<option>[\w-]+)")
SEPARATOR = "\0"  # between the values of one argument: no word of a command line has it
UNKNOWN = re.compile(r"No idea what '(?P<word>.*)' is!", re.DOTALL)
PARSE_CLEANUP, PRINT_HELP = program.Program.parse_cleanup, program.Program.print_help
# Heading -> names of tasks, and of groups with a dot at their end. A task is listed under the first heading that fits.
HEADINGS: Mapping[str, Sequence[str]] = {
    "Images": ("init", "plan", "build", "validate", "run", "report", "describe", "render", "sources", "lock"),
    "Registries": ("scan", "publish", "verify"),
    "Jobs": ("job", "job.run", "verdict", "job.check", "job.", "cluster"),
    "Engine": ("engine.",),
}
# For those who change the project: CONTRIBUTING.md names them, `--list` alone does not.
UNLISTED = ("test", "facts.", "matrix.", "ci.")


class TypedArgument(Argument):
    """An option of a task; a value of another type ends the process with a sentence."""

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Set the value as typed. Raises Exit for an empty one, one of another type, and one of several lines."""
        option = f"--{self.names[0].replace('_', '-')}"
        try:
            for text in split_values(value) if isinstance(value, str) else ():
                plain.check_characters(text)
        except ValueError as error:
            raise Exit(f"{option}: {error}", code=exit_codes.USAGE) from None
        if value == "" and self.kind in (str, list):
            raise Exit(f"{option}: its value is empty\ngive one, or leave the option out", code=exit_codes.USAGE)
        if self.kind is int and not re.fullmatch(r"[0-9]{1,9}", value):
            message = f"{option} {value}: not a whole number\nwrite digits, as in {option} 2"
            raise Exit(message, code=exit_codes.USAGE)
        super().set_value(value, cast)


class Verb(Task[Any]):
    """invoke's task with typed options, each with one short form or none.

    invoke 3.0 ignores an option without its value where it may be given more than once: `--target $NAME`, with NAME
    empty, would mean every target.
    """

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return the task's options, as the parser takes them."""
        return [_typed_argument(argument) for argument in super().get_arguments(ignore_unknown_help)]


def _typed_argument(argument: Argument) -> TypedArgument:
    name = argument.names[0]
    typed_argument = TypedArgument(
        names=(name, *([SHORT[name]] if name in SHORT else [])),
        kind=argument.kind,
        default=argument.default,
        help=argument.help,
        positional=argument.positional,
        optional=argument.optional,
        incrementable=argument.incrementable,
        attr_name=argument.attr_name,
    )
    if argument.kind is list:
        typed_argument.raw_value = None
    return typed_argument


class SuggestingParser(Parser):
    """invoke's parser, with errors that name what was probably meant, and their exit code."""

    def parse_argv(self, argv: Sequence[str]) -> ParseResult:
        """Parse what was typed. Raises Exit for an unknown task or option, and for a missing value."""
        words = list(argv)
        options = words[1 : words.index("--") if "--" in words else None]
        if words and words[0] in self.contexts and not {"--help", "-h"}.isdisjoint(options):
            # After a value for each positional argument: before these, invoke takes the option for such a value.
            words = [words[0], *("0" for _ in self.contexts[words[0]].positional_args), "--help"]
        elif words and words[0] in self.contexts:
            context = self.contexts[words[0]]
            if foreign := self._invokes_own_option(options, context):
                raise Exit(self.message(ParseError(f"No idea what {foreign!r} is!", context)), code=exit_codes.USAGE)
            words = _join_values(words, context)
        try:
            result: ParseResult = super().parse_argv(words)
            for context in result:
                if option := _misread(context):
                    raise ParseError(f"No idea what {option!r} is!", context)
                last_flag = context.flags[options[-1]] if options and options[-1] in context.flags else None
                if last_flag and last_flag.takes_value and not last_flag.optional:
                    # invoke takes no notice of it after an earlier value of the same option.
                    raise ParseError(f"Flag <str: {last_flag.name.replace('_', '-')}> has no value", context)
        except ParseError as error:
            raise Exit(self.message(error, options), code=exit_codes.USAGE) from None
        return result

    def _invokes_own_option(self, words: Sequence[str], context: ParserContext) -> str | None:
        """Return the word after a task that would set an option of invoke's own, as -f; None for no such word."""
        following = iter(words)
        for word in following:
            flag = context.flags.get(word)
            if flag and flag.takes_value:
                next(following, None)
            elif not flag and self.initial and word in self.initial.flags:
                return word
        return None

    def message(self, error: ParseError, options: Sequence[str] = ()) -> str:
        """Return the sentences for `error`; `options` is what was typed after the task."""
        if error.context and (repeated := _repeated(error.context, options)):
            return f"{repeated}: is given twice\nleave one out"
        if error.context and (option := _misread(error.context)):
            error = ParseError(f"No idea what {option!r} is!", error.context)
        unknown = UNKNOWN.search(str(error))
        if valueless := VALUELESS.search(str(error)):
            return f"--{valueless['option']}: needs a value, and has none\n{_help(error)}"
        if error.context and (missing := MISSING.search(str(error))):
            required = " and ".join(f"--{name}" for name in missing["names"].replace("'", "").split(", "))
            return f"{_typed_name(error.context)}: {required} must be given\n{_help(error)}"
        if unknown is None:
            return f"{error}\n{_help(error)}"
        word = unknown["word"]
        context = error.context
        task = _typed_name(context) if context is not None else None
        if word.startswith("-"):
            options = [name for name in (context.flag_names() if context is not None else ()) if name.startswith("--")]
            return f"{word}: no such option of {task or COMMAND}\n{_closest(word, options)}{_help(error)}"
        if context is not None and "--target" in context.flag_names() and is_target(word):
            return f"{word} is a target\nwrite {COMMAND} {task} --target {word}"
        if context is not None and "--target" in context.flag_names() and (close := _closest(word, _targets(), 0.6)):
            return f"{word}: no such target\n{close}write {COMMAND} {task} --target NAME"
        if word == "init" and not INSTALLED:
            return (
                "init: a task of the installed tool; a checkout works on itself\n"
                "python -m build makes the wheel to install: see README.md, An image of your own"
            )
        return f"{word}: no such task\n{_closest(word, list(self.contexts))}{COMMAND} --list shows all tasks"


def _join_values(words: Sequence[str], context: ParserContext) -> list[str]:
    """Return the words with all values for `logs` in one: invoke takes the second one for a task."""
    if "logs" not in context.args:
        return list(words)
    values, others = [], [words[0]]
    following = iter(words[1:])
    for word in following:
        if word.startswith("-") and word != "-":
            flag = context.flags.get(word)
            others.append(word)
            if flag and flag.takes_value:
                others += [value for value in (next(following, None),) if value is not None]
        else:
            values.append(word)
    return [others[0], *([SEPARATOR.join(values)] if values else []), *others[1:]]


def split_values(joined: str) -> list[str]:
    """Return the values that were typed for an argument that takes several."""
    return joined.split(SEPARATOR)


def _misread(context: ParserContext) -> str | None:
    """Return the word that invoke took for a positional argument, and that is an option.

    Returns:
        None for no such word.
    """
    values = (argument.value for argument in context.positional_args)
    return next((value for value in values if isinstance(value, str) and value.startswith("-") and value != "-"), None)


def _repeated(context: ParserContext, words: Sequence[str]) -> str | None:
    """Return the option for one value that `words` have twice; None for no such option."""
    names = [word.partition("=")[0] for word in words]
    once = (name for name, flag in context.flags.items() if flag.takes_value and flag.kind is not list)
    return next((name for name in once if names.count(name) > 1), None)


def _typed_name(context: ParserContext) -> str | None:
    """Return the name of a task as users type it: invoke has `job.job` for a default task."""
    return next(iter(context.aliases), context.name)


def _closest(word: str, words: Sequence[str], cutoff: float = 0.5) -> str:
    close = get_close_matches(word, words, n=3, cutoff=cutoff)
    return f"did you mean {' or '.join(close)}? " if close else ""


def _help(error: ParseError) -> str:
    name = _typed_name(error.context) if error.context is not None else None
    return f"{COMMAND} --help {name} shows its options" if name else f"{COMMAND} --help shows what can be given"


def is_target(word: str) -> bool:
    """Return whether the matrix, right or wrong, has a line for a target of this name."""
    try:
        return re.search(rf"^ {{2,4}}{re.escape(word)}:", files.read_text(MATRIX), re.MULTILINE) is not None
    except RdmaImagesError:
        return False


def _targets() -> list[str]:
    """Return the names of the matrix's targets; none where the matrix is not right."""
    from rdma_images.plan import matrix

    try:
        return list(matrix.load().targets)
    except (RdmaImagesError, OSError, ValueError):
        return []


def after_dashes(words: Sequence[str]) -> Sequence[str]:
    """Return what was typed after a lone --; invoke's own remainder has lost the quotes."""
    return words[words.index("--") + 1 :] if "--" in words else ()


def _print_help(self: program.Program) -> None:
    """Print the help of a command line without a task, as a task prints its answer."""
    with output.whole_answer():
        PRINT_HELP(self)


def _answer(self: program.Program) -> None:
    """Print what --help and --list ask for, as a task prints its answer.

    Raises Exit for an unknown task or group, and after the answer.
    """
    group = self.args.list.value
    if isinstance(group, str) and group not in self.collection.collections:
        groups = list(self.collection.collections)
        message = f"{group}: no such group of tasks\n{_closest(group, groups)}choose from {', '.join(groups)}"
        raise Exit(message, code=exit_codes.USAGE)
    try:
        with output.whole_answer():
            PARSE_CLEANUP(self)
    except ParseError as error:
        raise Exit(cast(SuggestingParser, self.parser).message(error), code=exit_codes.USAGE) from None


def install() -> None:
    """Have invoke's program use this parser, answer as tasks do, and list tasks by headings."""
    vars(program)["Parser"] = SuggestingParser
    functions = {"list_flat": list_tasks, "print_help": _print_help, "parse_cleanup": _answer}
    for name, function in functions.items():
        setattr(program.Program, name, function)


def list_tasks(invoke_program: Program) -> None:
    """Print every task under its heading; those of one group (`--list job`) in a single list."""
    rows = invoke_program._make_pairs(invoke_program.scoped_collection)
    if invoke_program.list_root:
        invoke_program.display_with_columns(pairs=rows)
        return
    rows = [(_name_to_type(name), summary) for name, summary in rows]
    for heading, group in grouped(rows).items():
        print(f"{heading}:\n")
        invoke_program.print_columns(group)


def grouped(rows: Sequence[tuple[str, str | None]]) -> dict[str, list[tuple[str, str | None]]]:
    """Return the rows (name, summary) by heading, in the order of `HEADINGS`."""
    remaining = list(rows)
    groups: dict[str, list[tuple[str, str | None]]] = {}
    for heading, names in HEADINGS.items():
        for name in names:
            matching_rows = [row for row in remaining if _is_called(row[0], name)]
            remaining = [row for row in remaining if row not in matching_rows]
            groups.setdefault(heading, []).extend(matching_rows)
    return groups


def _name_to_type(name: str) -> str:
    """Return the name to type: invoke shows the default task of a group as `job.job (job)`."""
    full, _, alias = name.partition(" (")
    return alias.rstrip(")") if alias else full


def _is_called(task: str, name: str) -> bool:
    return task.startswith(name) if name.endswith(".") else task == name
