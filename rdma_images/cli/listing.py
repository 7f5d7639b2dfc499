"""The answer to `--list`: the tasks of users in the order of their work, then those of maintainers and CI."""

from collections.abc import Mapping, Sequence

from invoke.program import Program

# Heading -> names of tasks, and of groups with a dot at their end. A task is listed under the first heading that fits.
HEADINGS: Mapping[str, Sequence[str]] = {
    "Images": ("init", "plan", "build", "validate", "run", "shell", "report", "describe", "render", "sources", "lock"),
    "Registries": ("licenses", "scan", "publish", "verify", "reproduce"),
    "Jobs": ("job", "job.run", "job.result", "verdict", "job.check", "job.", "cluster"),
    "Engine": ("engine.",),
    "Maintenance and CI": ("test", "facts.", "matrix.", "ci."),
}


def list_tasks(program: Program) -> None:
    """Print every task under its heading; those of one group (`--list job`) in a single list."""
    rows = program._make_pairs(program.scoped_collection)
    if program.list_root:
        program.display_with_columns(pairs=rows)
        return
    rows = [(_typed_name(name), summary) for name, summary in rows]
    for heading, group in grouped(rows).items():
        print(f"{heading}:\n")
        program.print_columns(group)


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


def _typed_name(name: str) -> str:
    """Return the name to type: invoke shows the default task of a group as `job.job (job)`."""
    full, _, alias = name.partition(" (")
    return alias.rstrip(")") if alias else full


def _is_called(task: str, name: str) -> bool:
    return task.startswith(name) if name.endswith(".") else task == name
