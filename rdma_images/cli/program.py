"""Every task, in its group; and the command `rdma-images`, invoke's program with these tasks."""

import io
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from invoke import program
from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.program import Program

from rdma_images.cli import building, engines, jobs, maintaining, planning, publishing, start_quickly, starting
from rdma_images.cli.parsing import TaskParser, unknown_task
from rdma_images.cli.task import Task, ended_in_order
from rdma_images.core import exit_codes, paths
from rdma_images.core.errors import suggestion

# Heading of `--list` -> names of tasks, and of groups with a dot at their end. A task is listed under the first heading
# that fits; without one are those for who changes the project, which CONTRIBUTING.md names.
HEADINGS: Mapping[str, Sequence[str]] = {
    "Images": ("init", "plan", "build", "validate", "run", "report", "describe", "render", "sources", "lock"),
    "Registries": ("scan", "publish", "verify"),
    "Jobs": ("job", "job.run", "verdict", "job.check", "job.", "cluster"),
    "Engine": ("engine.",),
}
_parse_core, _parse_tasks, _parse_cleanup = Program.parse_core, Program.parse_tasks, Program.parse_cleanup
_print_help = Program.print_task_help


def namespace() -> Collection:
    """Return every task: `test` is a checkout's alone, `init` an installation's. invoke then parses as we do."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # writes "?" for a character that its encoding lacks
    vars(program)["Parser"] = TaskParser
    ours = {
        "parse_core": _parse_own_options,
        "parse_tasks": _parse_typed_tasks,
        "parse_cleanup": _answer,
        "list_flat": _list_tasks,
        "print_task_help": _print_task_help,
    }
    for name, function in ours.items():
        setattr(Program, name, function)
    tasks = Collection()
    for module in (planning, building, publishing, jobs, engines, maintaining, starting):
        for task in vars(module).values():
            if isinstance(task, Task) and task.name != ("test" if paths.INSTALLED else "init"):
                group, _, name = str(task.name).rpartition(".")
                if group and group not in tasks.collections:
                    tasks.add_collection(Collection(group))
                (tasks.collections[group] if group else tasks).add_task(task, name)
    return tasks


def main() -> None:
    """Run the tasks that the command line names, and end the process with their exit code."""
    try:
        Path.cwd()
    except FileNotFoundError:
        print("the current folder was removed\nchange to another one", file=sys.stderr)
        sys.exit(exit_codes.REFUSED)
    command = "rdma-images"
    try:
        Program(name=command, binary=command, version=version(command), namespace=namespace()).run()
    except OSError as error:
        if not Path(error.filename or "").name.startswith(".invoke."):
            raise
        fix = "set HOME to a folder: invoke reads its settings there"
        print(f"{error.filename}: {error.strerror}\n{fix}", file=sys.stderr)
        sys.exit(exit_codes.REFUSED)


def _parse_own_options(self: Program, argv: list[str] | None) -> None:
    """Parse invoke's own options, and print what --version and --print-completion-script ask for."""
    with ended_in_order():
        _parse_core(self, argv)


def _parse_typed_tasks(self: Program) -> None:
    """Parse the tasks. Raises Exit for a mistake."""
    start_quickly()  # invoke's own options have just turned off that compiled modules are kept
    try:
        _parse_tasks(self)
    except ParseError as error:
        raise Exit(str(error), code=exit_codes.REFUSED) from None


def _answer(self: Program) -> None:
    """Print what --help and --list ask for. Raises Exit after the answer, and for an unknown task, group or setting."""
    task, group = self.args.help.value, self.args.list.value
    mistake = ""
    if isinstance(task, str) and task not in self.parser.contexts:
        mistake = unknown_task(task, list(self.parser.contexts))
    elif isinstance(group, str) and group not in self.collection.collections:
        mistake = f"{group}: no such group of tasks\n{suggestion(group, self.collection.collections)}"
    elif self.args.config.value:
        mistake = f"-f {self.args.config.value}: invoke's settings change nothing here\nleave it out"
    if mistake:
        raise Exit(mistake, code=exit_codes.REFUSED)
    with ended_in_order():
        _parse_cleanup(self)


def _list_tasks(self: Program) -> None:
    """Print every task of users under its heading; the tasks of one group (`--list job`) in a single list."""
    rows = self._make_pairs(self.scoped_collection)
    if self.list_root:
        self.display_with_columns(pairs=rows)
        return
    # invoke shows the default task of a group as `job.job (job)`.
    summaries = {name.partition(" (")[2].rstrip(")") or name: summary for name, summary in rows}
    for heading, names in HEADINGS.items():
        listed = [t for name in names for t in summaries if t == name or (name.endswith(".") and t.startswith(name))]
        print(f"{heading}:\n")
        self.print_columns([(task, summaries.pop(task)) for task in dict.fromkeys(listed)])


def _print_task_help(self: Program, name: str) -> None:
    """Print the help of a task, and after it the fields that its --field takes."""
    _print_help(self, name)
    if "--field" in self.parser.contexts[name].flags:
        from rdma_images.jobs.write import jobs_file  # here: no other help needs the models of jobs

        print("Fields of --field:")
        self.print_columns([(field, row.description) for field, row in jobs_file.untyped_fields().items()])
