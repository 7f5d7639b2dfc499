"""Every task, in its group; and the command `rdma-images`, invoke's program with these tasks."""

import inspect
import io
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from invoke import main as invokes_own
from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.parser.context import ParserContext
from invoke.program import Program
from invoke.terminals import pty_size

from rdma_images.cli import building, engines, jobs, maintaining, planning, publishing, start_quickly, starting
from rdma_images.cli.parsing import TaskParser, after_dashes, help_row, name_of, required, typed, unknown_task
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
# invoke's own options that are supported, as --help shows them. Every other one is refused.
OWN_OPTIONS: Mapping[str, tuple[str, str]] = {
    "help": ("-h, --help TASK", "Show the options and examples of a task."),
    "list": ("-l, --list [GROUP]", "List all tasks, or those of a group, such as engine."),
    "version": ("-V, --version", "Show the version." if paths.INSTALLED else "Show the version of invoke."),
    "print-completion-script": ("--print-completion-script SHELL", "For `source`: bash, zsh or fish completes tasks."),
    "complete": ("--complete -- LINE", "What that script calls."),
    "search-root": ("-r, --search-root FOLDER", "The checkout; by default this folder, or one above it."),
}


class TaskProgram(Program):
    """invoke's program, with the parser, the lists and the help of our tasks."""

    def parse_core(self, argv: list[str] | None) -> None:
        """Parse invoke's own options, and print what --version and --print-completion-script ask for."""
        with ended_in_order():
            super().parse_core(argv)

    def _make_parser(self) -> TaskParser:
        own = [option for name, option in self.initial_context.args.items() if name in OWN_OPTIONS]
        return TaskParser(self.collection.to_contexts(), ParserContext(args=own))

    def parse_tasks(self) -> None:
        """Parse the tasks. Raises Exit for a mistake."""
        start_quickly()  # invoke's own options have just turned off that compiled modules are kept
        try:
            super().parse_tasks()
        except ParseError as error:
            raise Exit(str(error), code=exit_codes.REFUSED) from None

    def parse_cleanup(self) -> None:
        """Print what --help and --list ask for. Raises Exit after the answer, and for what cannot be done."""
        task, group, words = self.args.help.value, self.args.list.value, " ".join(after_dashes(self.argv))
        void = [f"--{name}" for name, option in self.args.items() if option.got_value and name not in OWN_OPTIONS]
        mistake = ""
        if isinstance(task, str) and task not in self.parser.contexts:
            mistake = unknown_task(task, list(self.parser.contexts), self.core[0])
        elif isinstance(group, str) and group not in self.collection.collections:
            mistake = f"{group}: no such group of tasks\n{suggestion(group, self.collection.collections)}"
        elif void:
            mistake = f"{void[0]}: this option of invoke's is not supported here\nleave it out"
        elif words and self.tasks and not self.collection[self.tasks[-1].name].takes_command:
            mistake = f"{name_of(self.tasks[-1])}: takes no words after --, and got `{words}`\nleave them out"
        if mistake:
            raise Exit(mistake, code=exit_codes.REFUSED)
        with ended_in_order():
            super().parse_cleanup()

    def list_flat(self) -> None:
        """Print every task of users under its heading; the tasks of one group (`--list job`) in a single list."""
        rows = self._make_pairs(self.scoped_collection)
        if group := self.list_root:
            default = f".{self.scoped_collection.default}"  # `job` stands for job.job
            print(f"Tasks of {group}:\n")
            self.print_columns([(group if name == default else group + name, summary) for name, summary in rows])
            return
        # invoke shows the default task of a group as `job.job (job)`.
        summaries = {name.partition(" (")[2].rstrip(")") or name: summary for name, summary in rows}
        for heading, names in HEADINGS.items():
            listed = [t for n in names for t in summaries if t == n or (n.endswith(".") and t.startswith(n))]
            print(f"{heading}:\n")
            self.print_columns([(task, summaries.pop(task)) for task in dict.fromkeys(listed)])

    def print_help(self) -> None:
        """Print the options that come before a task, and the tasks."""
        print(f"Usage: {paths.COMMAND} TASK [options]\n\nOptions:\n")
        self.print_columns([row for name, row in OWN_OPTIONS.items() if name in self.args])
        self.list_tasks()

    def print_task_help(self, name: str) -> None:
        """Print usage, description, options and examples of a task, and the fields that its --field takes."""
        task, context = self.collection[name], self.parser.contexts[name]
        words = [paths.COMMAND, name_of(context), *map(typed, required(context))]
        words += ["[options]"] * (len(context.args) > len(required(context)))
        print("Usage:", *words, *["[-- COMMAND]"] * task.takes_command, end="\n\n")
        for paragraph in inspect.cleandoc(str(task.__doc__)).split("\n\n"):
            print(textwrap.fill(paragraph, pty_size()[0]), end="\n\n")
        if context.args:
            print("Options:\n")
            self.print_columns(list(map(help_row, context.args.values())))
        print("Examples:\n", *(f"  {paths.COMMAND} {example}" for example in task.examples), "", sep="\n")
        if "field" in context.args:
            from rdma_images.jobs.write import jobs_file  # here: no other help needs the models of jobs

            print("Fields of --field:\n")
            self.print_columns([(field, row.description) for field, row in jobs_file.untyped_fields().items()])


def namespace() -> Collection:
    """Return every task: `test` is a checkout's alone, `init` an installation's. invoke becomes our program."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # writes "?" for a character that its encoding lacks
    invokes_own.program.__class__ = TaskProgram
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
        TaskProgram(name=command, binary=command, version=version(command), namespace=namespace()).run()
    except OSError as error:
        if not Path(error.filename or "").name.startswith(".invoke."):
            raise
        fix = "set HOME to a folder: invoke reads its settings there"
        print(f"{error.filename}: {error.strerror}\n{fix}", file=sys.stderr)
        sys.exit(exit_codes.REFUSED)
