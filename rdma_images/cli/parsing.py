"""The parser of the tasks on a command line, and of their options.

invoke's parser takes any letter for an option and a task's second word for another task. It does not always notice
that an option lacks its value, and its errors are tracebacks or suggest no similar word.
"""

import copy
import inspect
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
        result = ParseResult()
        if self.initial:
            result.append(copy.deepcopy(self.initial))
        context, contexts = self.initial or ParserContext(), list[ParserContext]()
        words = iter(argv[: argv.index("--")] if "--" in argv else argv)
        for word in words:
            # The argument of the next word: the first without a value, or one that takes several.
            argument = next((a for a in context.positional_args if a.kind is list or not a.got_value), None)
            if word in ("--help", "-h") and contexts:
                result[0].args["help"].value = context.name
                return result
            if word.startswith("-") and word != "-":
                _read_option(word, words, context)
            elif argument:
                _set(argument, word, context)
            elif word in self.contexts:
                context = copy.deepcopy(self.contexts[word])
                contexts.append(context)
            else:
                raise ParseError(unknown_task(word, list(self.contexts), context), context)
        for context in contexts:
            if missing := [typed(argument) for argument in required(context) if not argument.got_value]:
                needs = f"{name_of(context)}: {' and '.join(missing)} must be given"
                raise ParseError(f"{needs}\n{_help(context)}", context)
        result.extend(contexts)
        return result


def _read_option(word: str, following: Iterator[str], context: ParserContext) -> None:
    """Set the option that a word names, from this word or the next. Raises ParseError."""
    option, equals, value = word.partition("=")
    if option not in context.flags or (equals and not context.flags[option].takes_value):
        fix = did_you_mean(option, [name for name in context.flags if name.startswith("--")]) or _help(context)
        raise ParseError(f"{word}: no such option of {name_of(context)}\n{fix}", context)
    flag = context.flags[option]
    if not flag.takes_value:
        flag.value = True
        return
    if flag.got_value and flag.kind is not list:
        raise ParseError(f"--{flag.names[0]}: is given twice\nleave one out", context)
    given = value if equals else next(following, None)
    if given is None or (not equals and given in context.flags):
        raise ParseError(f"--{flag.names[0]}: needs a value, and has none\n{_help(context)}", context)
    _set(flag, given, context)


def _set(argument: Argument, text: str, context: ParserContext) -> None:
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


def unknown_task(word: str, tasks: Sequence[str], context: ParserContext) -> str:
    """Return the message for a word that names no task; `context` is what comes before it."""
    options = [argument.names[0] for argument in required(context) if not argument.got_value]
    if options or "target" in context.args:
        option = next(iter(options), "target")
        return f"{word}: no such task\nan option comes before its value: {COMMAND} {name_of(context)} --{option} {word}"
    if word == "init":
        return "init: no such task of a clone\ninstall the wheel: its command is `rdma-images init`"
    return f"{word}: no such task\n{did_you_mean(word, tasks) or f'{COMMAND} --list shows all tasks'}"


def required(context: ParserContext) -> list[Argument]:
    """Return the arguments of a task that must be given."""
    return [argument for argument in context.args.values() if argument.default is inspect.Parameter.empty]


def typed(argument: Argument) -> str:
    """Return an argument as it is typed: `--set AXIS=VALUE`, or LOG... where its place says what it is."""
    word = str(argument.help).rpartition(" | ")[0] or argument.names[0].upper()
    return word if argument.positional else f"--{argument.names[0]}{f' {word}' * argument.takes_value}"


def help_row(argument: Argument) -> tuple[str, str]:
    """Return an argument as it is typed, with its short form, and what its annotation says of it."""
    text = str(argument.help).rpartition(" | ")[2]
    text = f"{text[:-1]}; repeatable." if argument.kind is list and not argument.positional else text
    return ", ".join([*(f"-{name}" for name in argument.nicknames), typed(argument)]), text


def name_of(context: ParserContext) -> str:
    """Return the name of a task as users type it: invoke has `job.job` for a default task."""
    return next(iter(context.aliases), context.name or COMMAND)


def _help(context: ParserContext) -> str:
    return f"{COMMAND} --help{f' {name_of(context)}' * bool(context.name)} shows its options"


def after_dashes(words: Sequence[str]) -> Sequence[str]:
    """Return what was typed after a lone --; invoke's own remainder has lost the quotes."""
    return words[words.index("--") + 1 :] if "--" in words else ()
