"""A launcher's own options on a command line, read by the table of those that it has."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from rdma_images.facts.launch_options import LauncherOptions, closest
from rdma_images.jobs.check.commands import OPTION, ShellWord
from rdma_images.jobs.check.foreign_job import LocatedText, Severity, ShellFault

OPEN = re.compile(r"[$<{%`]|your|(?-i:^[A-Z][A-Z_]+$)", re.IGNORECASE)  # a value that is filled in later


@dataclass
class ParsedOptions:
    """All options by name, with _ for -; the position of the first other word; and what is refused."""

    occurrences: list[tuple[str, LocatedText]] = field(default_factory=list)
    end: int = 0
    faults: list[ShellFault] = field(default_factory=list)
    has_unknown: bool = False

    @property
    def options(self) -> dict[str, LocatedText]:
        """Return the last of each."""
        return dict(self.occurrences)


def parse(program: str, tables: Sequence[LauncherOptions], words: Sequence[ShellWord]) -> ParsedOptions:
    """Read the options that a command line begins with.

    Args:
        program: the launcher's name, for people.
        tables: its options; of several implementations, of which any may be meant.
        words: those behind the program.

    Returns:
        What the implementation with the fewest faults reads. A command that fits none of several has a single fault,
        and only where each of its options is one of some implementation.
    """
    results = [_Parser(program, table, words).parse() for table in tables]
    best = min(results, key=lambda result: len(result.faults))
    if len(tables) > 1 and best.has_unknown:
        return replace(best, faults=list(_mixed(program, tables, words)))
    return best


def _mixed(program: str, tables: Sequence[LauncherOptions], words: Sequence[ShellWord]) -> Iterator[ShellFault]:
    """Yield the fault of a command with options of several implementations; none where one of them is no option."""
    unknown: list[str] = []
    for table in tables:
        result = _Parser(program, table, words).parse()
        names = [fault.word.text for fault in result.faults if result.has_unknown]
        if not names or any(all(other.resolve(name.lstrip("-")) is None for other in tables) for name in names):
            return
        unknown.append(names[0])
    word = next(word for word in words if word.text.partition("=")[0] in unknown)
    yield ShellFault(
        LocatedText(word.text, word.line),
        f"{unknown[1]} and {unknown[0]} are options of different MPIs: no {program} has both",
        "write those of the MPI that is installed: `mpirun --version`",
        "warning",
    )


@dataclass
class _Parser:
    program: str
    table: LauncherOptions
    words: Sequence[ShellWord]
    result: ParsedOptions = field(default_factory=ParsedOptions)

    def parse(self) -> ParsedOptions:
        position = 0
        while position < len(self.words) and OPTION.match(self.words[position].text):
            position = self._option(position)
        if position < len(self.words) and self.words[position].text == "--":
            position += 1
        self.result.end = position
        self._check_pairs()
        return self.result

    def _option(self, position: int) -> int:
        """Read the option at a position, and return that of the word behind it and its values."""
        word = self.words[position]
        name, equals, value = word.text.partition("=")
        option, attached = self._resolve(name)
        if option is None:
            self._add_unknown(word, name)
            following = self.words[position + 1].text if position + 1 < len(self.words) else "-"
            is_value = not equals and not following.startswith("-") and not following.endswith((".py", ".sh"))
            return position + 1 + is_value
        arity = self.table.arity(option)
        if attached and arity in ("one", "optional"):
            value, equals = attached + equals + value, "="
        elif arity == "one" and not equals:
            position += 1
            following_word = self.words[position] if position < len(self.words) else None
            if following_word is None or self._is_option(following_word.text):
                self._refuse(
                    word, f"{name} has no value: {self.program} refuses to start", f"write its value behind {name}"
                )
                return position
            value = following_word.text
        elif arity == "one" and not value:
            self._refuse(word, f"{word.text[:40]} is empty", "write the value right behind the equals sign")
        elif arity == "pair":
            position += 2
        self.result.occurrences.append((option.replace("-", "_"), LocatedText(value, word.line)))
        if arity != "flag" and value and not OPEN.search(value):
            text = value.replace('\\"', '"')
            if not self.table.fits(option, text):
                fix = f"write a value {'that is ' if option in self.table.numbers else ''}{self.table.form(option)}"
                self._refuse(word, f"{name} {text[:60]}: {self.program} does not take this value", fix)
        return position + 1

    def _resolve(self, name: str) -> tuple[str | None, str]:
        """Return the option that a word stands for, and what is attached to its letter; letters may be joined."""
        bare = name.lstrip("-")
        is_long = name.startswith("--") or self.table.single_dash == "all" or bare in self.table.single_dash
        if bare in self.table.short and (len(bare) > 1 or not name.startswith("--") or self.table.single_dash == "all"):
            return self.table.short[bare], ""
        if is_long:
            return self.table.resolve(bare), ""
        option = self.table.short.get(bare[0])
        if option and self.table.arity(option) == "flag" and len(bare) > 1:
            return self._resolve("-" + bare[1:])
        return option, bare[1:]

    def _is_option(self, text: str) -> bool:
        return OPTION.match(text) is not None and self._resolve(text.partition("=")[0])[0] is not None

    def _add_unknown(self, word: ShellWord, name: str) -> None:
        self.result.has_unknown = True
        before = " ".join(each.text for each in self.words[: self.words.index(word) + 1])
        if "$" in name or before.count("$(") > before.count(")"):
            return  # a part of a command whose output is a value
        near = closest(name.lstrip("-"), self.table.names)
        unless = ", unless a plugin of the cluster has it" if self.table.plugins else ""
        severity: Severity = "warning" if self.table.plugins else "error"
        self.result.faults.append(
            ShellFault(
                LocatedText(name, word.line),
                f"{self.program} has no option {name[:40]}: it refuses to start{unless}",
                f"write --{near}" if near else "remove it, or write it behind the program that has it",
                severity,
            )
        )

    def _refuse(self, word: ShellWord, message: str, fix: str) -> None:
        self.result.faults.append(ShellFault(LocatedText(word.text, word.line), message, fix))

    def _check_pairs(self) -> None:
        """Add each pair of options that exclude each other."""
        for pair in self.table.exclusive:
            words = [self._find(name) for name in pair]
            if words[0] and words[1]:
                names = [
                    f"--{name.partition('=')[0]}{f' {word.text}' if word and '=' in name else ''}"
                    for name, word in zip(pair, words, strict=True)
                ]
                problem = f"{' and '.join(names)} exclude each other: {self.program} refuses to start"
                self.result.faults.append(ShellFault(words[1], problem, "leave one out"))

    def _find(self, name: str) -> LocatedText | None:
        """Return the option of a name, or of NAME=FORM, where it is given."""
        option, _, form = name.partition("=")
        word = self.result.options.get(option.replace("-", "_"))
        return word if word and (not form or re.fullmatch(form, word.text)) else None
