"""What launchers accept: the options of their command lines and the keys of their files."""

import difflib
import re
from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from rdma_images.facts.origin import FactsFile, Pattern, Row

MIN_SIMILARITY = 0.75  # as difflib measures it: one letter of four
Arity = Literal["flag", "optional", "one", "pair"]
NUMBER = r"[+-]?[0-9]+"


class LauncherOptions(Row):
    """The options of a program."""

    program: str = ""  # where that is not the row's name
    spelling: Literal["exact", "any"] = "exact"
    plugins: bool = False
    single_dash: tuple[str, ...] | Literal["all"] = ()
    flags: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    short: dict[str, str] = Field(default_factory=dict)
    forms: dict[str, Pattern] = Field(default_factory=dict)
    exclusive: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the long names of all options."""
        return (*self.flags, *self.optional, *self.numbers, *self.texts, *self.pairs)

    def resolve(self, name: str) -> str | None:
        """Return the option that a long name or its beginning stands for; None for none."""
        names = self.names
        if self.spelling == "any":
            by_key = {option.replace("-", "_"): option for option in names}
            name = by_key.get(name.replace("-", "_"), name.replace("_", "-") if "-" in "".join(names) else name)
        if name in names:
            return name
        return next((option for option in names if option.startswith(name)), None)

    def arity(self, option: str) -> Arity:
        """Return how many values an option takes."""
        if option in self.flags:
            return "flag"
        return "optional" if option in self.optional else "pair" if option in self.pairs else "one"

    def fits(self, option: str, value: str) -> bool:
        """Return whether a value has the option's form."""
        pattern = NUMBER if option in self.numbers else self.forms.get(option, ".*")
        return re.fullmatch(pattern, value, re.DOTALL) is not None

    def form(self, option: str) -> str:
        """Return what a value of an option is, for people."""
        return "a whole number" if option in self.numbers else f"of the form {self.forms[option]}"


class FileKeys(Row):
    """The keys of a mapping: all others are refused."""

    program: str
    names: tuple[str, ...]
    needs: tuple[str, ...] = ()
    exclusive: tuple[tuple[str, str], ...] = ()


class LauncherVariables(Row):
    """Variables that a launcher sets in some of its scripts."""

    names: tuple[str, ...]


class LaunchOptions(FactsFile):
    """facts/launch-options.yaml."""

    FILE = "launch-options.yaml"

    launchers: dict[str, LauncherOptions]
    keys: dict[str, FileKeys]
    variables: dict[str, LauncherVariables]

    def tables(self, program: str) -> tuple[LauncherOptions, ...]:
        """Return the options of each implementation of a program; none for an unknown one."""
        return tuple(row for name, row in self.launchers.items() if (row.program or name) == program)


def closest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that another one is nearly."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=MIN_SIMILARITY)), None)
