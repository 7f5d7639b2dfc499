"""The command `rdma-images`: invoke's program with the project's tasks, for code installed from a wheel."""

import sys
from pathlib import Path


def main() -> None:
    """Run the tasks that the command line names; the exit code of the process."""
    try:
        Path.cwd()
    except FileNotFoundError:
        sys.exit("the current folder was removed\nchange to another one")
    from importlib.metadata import version

    from invoke.program import Program

    from rdma_images.cli import start_quickly
    from rdma_images.cli.namespace import namespace
    from rdma_images.cli.output import whole_answer
    from rdma_images.core import exit_codes

    class QuickProgram(Program):
        """invoke's program, which lets the tasks' own imports be kept compiled."""

        def parse_core(self, argv: list[str] | None) -> None:
            """Read invoke's own options. It turns off here that Python writes compiled modules."""
            super().parse_core(argv)
            start_quickly()

    try:
        with whole_answer():
            QuickProgram(
                name="rdma-images", binary="rdma-images", version=version("rdma-images"), namespace=namespace()
            ).run()
    except OSError as error:
        if not Path(error.filename or "").name.startswith(".invoke."):
            raise
        print(
            f"{error.filename}: {error.strerror}\nset HOME to a folder: invoke reads its settings there",
            file=sys.stderr,
        )
        sys.exit(exit_codes.USAGE)
