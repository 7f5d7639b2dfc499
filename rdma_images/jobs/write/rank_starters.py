"""Commands that start ranks themselves, such as torchrun and deepspeed: no rank of a job can run one."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from rdma_images.core.errors import RefusedError
from rdma_images.facts.launchers import RankStarter

PYTHON = re.compile(r"python[0-9.]*")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
PREFIXES = ("env", "exec", "nice", "nohup", "ncu", "nsys", "numactl", "stdbuf", "taskset", "time", "timeout")
SHELLS = ("sh", "bash")
AS_MODULE = ("-m", "--module", "--module_mode")


def refuse(command: Sequence[str], starters: Mapping[str, RankStarter]) -> None:
    """Refuse a command that starts ranks itself: each rank would start as many again.

    Raises:
        RefusedError: The command starts ranks. The message has what a rank is to run, and the lost options.
    """
    for words in _simple_commands(command):
        prefixed = bool(words) and (_program(words[0]) in PREFIXES or ASSIGNMENT.fullmatch(words[0]) is not None)
        for start, word in enumerate(words):
            if match := _match(words[start:], starters):
                name, length = match
                command = " ".join(words[start : start + length])
                raise RefusedError(_message(command, words[start + length :], starters[name]))
            if not prefixed or _is_script(word):
                break


def _simple_commands(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the commands of a command: itself, or those of a shell's -c."""
    if len(command) > 2 and _program(command[0]) in SHELLS and command[1] in ("-c", "-lc", "-ec", "-exc"):
        for line in re.split(r"&&|\|\||[;|\n]", command[2]):
            try:
                yield shlex.split(line)
            except ValueError:  # a quote that holds a separator
                continue
    else:
        yield command


def _match(words: Sequence[str], starters: Mapping[str, RankStarter]) -> tuple[str, int] | None:
    """Return the row of the program that a command begins with, and how many words name it."""
    normalized = [_program(words[0]), *words[1:]]
    if PYTHON.fullmatch(normalized[0]):
        options = 1
        while options < len(normalized) and normalized[options].startswith("-") and normalized[options] != "-m":
            options += 1
        module, length = normalized[options + 1 : options + 2], options + 2
        is_module = normalized[options : options + 1] == ["-m"]
    else:
        module, length, is_module = normalized[1:2], 2, normalized[0] == "-m"
    for name, row in starters.items():
        if is_module and module and module[0] in row.modules:
            return name, length
        for program in row.programs:
            parts = program.split()
            if normalized[: len(parts)] == parts:
                return name, len(parts)
    return None


def _message(name: str, words: Sequence[str], starter: RankStarter) -> str:
    problem = f"{name}: the launcher starts the ranks itself"
    fix = "after -- give only what a rank runs"
    note = f"\n{starter.note}" if starter.note else ""
    start = next((n for n, word in enumerate(words) if _is_script(word) or word in AS_MODULE), None)
    if start is None:
        return f"{problem}\n{fix}{note}"
    options, command = list(words[:start]), list(words[start:])
    if command[0] in AS_MODULE:
        command[0] = "-m"
    for position, word in enumerate(options):
        if PYTHON.fullmatch(_program(word)):
            options, command = options[:position], [*options[position + 1 :], *command]
            break
    lost = f"\nthe job sets nodes and ranks; what else {shlex.join(options)} sets, set in the script" if options else ""
    return f"{problem}\n{fix}: -- {shlex.join(command)}{lost}{note}"


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def _is_script(word: str) -> bool:
    return word.endswith(".py") and not word.startswith("-")
