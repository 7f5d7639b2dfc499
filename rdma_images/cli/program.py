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

    from rdma_images.cli.base import whole_answer
    from rdma_images.cli.namespace import namespace

    with whole_answer():
        Program(name="rdma-images", binary="rdma-images", version=version("rdma-images"), namespace=namespace()).run()
