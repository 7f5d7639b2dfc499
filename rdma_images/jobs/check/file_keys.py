"""The keys of mappings in files that a launcher refuses others in, by the tables of facts/launch-options.yaml."""

import re
from collections.abc import Iterator

from rdma_images.facts import facts_file
from rdma_images.facts.launch_options import LaunchOptions, closest
from rdma_images.jobs.check.foreign_job import LocatedText, ShellFault, YamlNode


def key_faults(node: YamlNode, table: str) -> Iterator[ShellFault]:
    """Yield the keys of a mapping that its launcher refuses, and those that it misses."""
    keys = facts_file.read(LaunchOptions).keys[table]
    if not node.mapping:
        return
    for name in node.mapping:
        if name not in keys.names and not str(name).startswith(("x-", "_", "<<")):
            near = closest(str(name), keys.names)
            word = LocatedText(str(name), node.lookup(name).line)
            problem = f"{keys.program} knows no key {str(name)[:40]} here: it refuses the file"
            yield ShellFault(
                word, problem, f"write {near}" if near else f"it knows {', '.join(keys.names[:8])} and others"
            )
    for name in keys.needs:
        if name not in node.mapping and "<<" not in node.mapping:
            yield ShellFault(LocatedText(name, node.line), f"{keys.program} needs the key {name} here", "add it")
    for first, second in keys.exclusive:
        if first in node.mapping and second in node.mapping:
            word = LocatedText(second, node.lookup(second).line)
            yield ShellFault(
                word, f"{first} and {second} exclude each other: {keys.program} refuses them", "leave one out"
            )


def early_variables(
    script: LocatedText | None, first_line: int, table: str, file_variables: frozenset[str]
) -> Iterator[ShellFault]:
    """Yield the variables that a script reads and its launcher sets in another of its scripts alone.

    Args:
        script: the script.
        first_line: the line of the file in which it begins.
        table: the variables.
        file_variables: those that the file sets.
    """
    names = facts_file.read(LaunchOptions).variables[table].names
    seen: set[str] = set()
    for number, line in enumerate(script.text.split("\n") if script else (), first_line):
        for match in re.finditer(rf"\$\{{?({'|'.join(names)})\b(?!:?[-=])", line.split("#")[0]):
            if match[1] not in seen | file_variables:
                seen.add(match[1])
                problem = f"{match[1]} is empty in `setup`: SkyPilot sets it in `run` alone"
                fix = f"read it in `run`, or {match[1].replace('SKYPILOT_', 'SKYPILOT_SETUP_')} in `setup`"
                yield ShellFault(LocatedText(match[1], number), problem, fix)
