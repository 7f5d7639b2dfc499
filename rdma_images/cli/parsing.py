"""The parser of the tasks on a command line, and of their options.

invoke's parser takes any letter for an option and a task's second word for another task. It does not always notice
that an option lacks its value, and its errors are tracebacks or suggest no similar word.
"""

import copy
import re
from collections.abc import Iterator, Sequence

from invoke.exceptions import ParseError
from invoke.parser import Parser, ParseResult
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

from rdma_images.core import plain
from rdma_images.core.errors import did_you_mean
from rdma_images.core.paths import COMMAND


class TaskParser(Parser):
    """A parser that takes options by their whole names only, and suggests the likely word for a mistake."""

    def parse_argv(self, argv: Sequence[str]) -> ParseResult:
        """Return invoke's own options, then the tasks that were typed. Raises ParseError, in sentences."""
        if not self.contexts:  # what comes before the tasks
            return super().parse_argv(list(argv))
        result = ParseResult()
        if self.initial:
            result.append(copy.deepcopy(self.initial))
        typed: list[ParserContext] = []
        words = iter(argv[: argv.index("--")] if "--" in argv else argv)
        for word in words:
            context = typed[-1] if typed else None
            if word in ("--help", "-h") and context:
                result[0].args["help"].value = context.name
                return result
            if word.startswith("-") and word != "-":
                _read_option(word, words, context)
            elif context and (argument := _next_positional(context)):
                _set(argument, word, context)
            elif word in self.contexts:
                typed.append(copy.deepcopy(self.contexts[word]))
            else:
                raise ParseError(unknown_task(word, list(self.contexts), context), context)
        for context in typed:
            if missing := [f"--{argument.name}" for argument in context.positional_args if not argument.got_value]:
                raise ParseError(f"{_name(context)}: {' and '.join(missing)} must be given\n{_help(context)}", context)
        result.extend(typed)
        return result


def _read_option(word: str, following: Iterator[str], context: ParserContext | None) -> None:
    """Set the option that a word names, from this word or the next. Raises ParseError."""
    option, equals, value = word.partition("=")
    flag = context.flags[option] if context and option in context.flags else None  # its `get` knows no short form
    if flag is None or (equals and not flag.takes_value):
        names = [name for name in context.flags if name.startswith("--")] if context else []
        fix = did_you_mean(option, names) or _help(context)
        raise ParseError(f"{word}: no such option of {_name(context)}\n{fix}", context)
    if not flag.takes_value:
        flag.value = True
        return
    if flag.got_value and flag.kind is not list:
        raise ParseError(f"--{flag.names[0]}: is given twice\nleave one out", context)
    given = value if equals else next(following, None)
    if given is None or (not equals and context and given in context.flags):
        raise ParseError(f"--{flag.names[0]}: needs a value, and has none\n{_help(context)}", context)
    _set(flag, given, context)


def _set(argument: Argument, text: str, context: ParserContext | None) -> None:
    """Set a value as typed. Raises ParseError for an empty one, one of another type, and one of several lines."""
    option = f"--{argument.names[0]}"
    try:
        plain.check_characters(text)
    except ValueError as error:
        raise ParseError(f"{option}: {error}", context) from None
    if not text:
        raise ParseError(f"{option}: its value is empty\ngive one, or leave the option out", context)
    if argument.kind is int and not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise ParseError(f"{option} {text}: not a whole number from 1 on\nwrite digits, as in {option} 2", context)
    argument.value = text


def _next_positional(context: ParserContext) -> Argument | None:
    """Return the positional argument for the next word: the first without a value, or one that takes several."""
    return next((a for a in context.positional_args if a.kind is list or not a.got_value), None)


def unknown_task(word: str, tasks: Sequence[str], context: ParserContext | None = None) -> str:
    """Return the message for a word that names no task; `context` is the task before it."""
    if context and "--target" in context.flags:
        return f"{word}: no such task\na target is named with --target: {COMMAND} {_name(context)} --target {word}"
    if word == "init":
        return "init: no such task of a clone\ninstall the wheel: its command is `rdma-images init`"
    return f"{word}: no such task\n{did_you_mean(word, tasks) or f'{COMMAND} --list shows all tasks'}"


def _name(context: ParserContext | None) -> str:
    """Return the name of a task as users type it: invoke has `job.job` for a default task."""
    return str(next(iter(context.aliases), context.name)) if context else COMMAND


def _help(context: ParserContext | None) -> str:
    return f"{COMMAND} --help {_name(context)} shows its options" if context else f"{COMMAND} --help shows its options"


def after_dashes(words: Sequence[str]) -> Sequence[str]:
    """Return what was typed after a lone --; invoke's own remainder has lost the quotes."""
    return words[words.index("--") + 1 :] if "--" in words else ()
