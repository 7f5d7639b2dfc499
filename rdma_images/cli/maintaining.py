"""The tasks of those who work on the project: facts.*, matrix.* and test."""

import subprocess
import sys

from invoke.context import Context
from invoke.exceptions import Exit

from rdma_images.cli.output import show
from rdma_images.cli.verb import JSON, verb
from rdma_images.core import paths
from rdma_images.core.progress import progress
from rdma_images.inputs import project

WORKERS = 4  # for two cores: many tests wait for a server, a scheduler or a container


@verb(
    "facts.update",
    "facts.update --all --write",
    help={
        "all": "Read every release again, not only those in the matrix; takes minutes.",
        "write": "Add a row to facts/ for each new release.",
    }
    | JSON,
)
def update(_: Context, all: bool = False, write: bool = False, json: bool = False) -> None:
    """Look for new releases and for facts that have changed.

    Reads the package index and the vendors' pages.
    """
    from rdma_images.maintain import facts_update
    from rdma_images.maintain.facts_update import reading

    loaded_project = project.load()
    changes = facts_update.update(
        loaded_project.facts, loaded_project.matrix, loaded_project.mirrors, all, progress=progress
    )
    written = facts_update.write(changes) if write else ()
    show(reading.readings_json(changes) if json else reading.update_table(changes, written))


@verb("matrix.schema")
def schema(_: Context) -> None:
    """Write the JSON schemas of the files that users write.

    matrix.yaml, mirrors.yaml and registries.yaml name theirs in the first line, for editors to complete and check them.
    """
    from rdma_images.core import paths
    from rdma_images.maintain import schemas

    show(*(paths.display_path(path) for path in schemas.write(paths.PROJECT)))


@verb(
    "test --unit",
    "test -k publish",
    "test --real",
    name="test",
    help={
        "unit": "Only the fast tests, which need no engine.",
        "exhaustive": "Also the long tail: each fault that a validator finds, each broken data path.",
        "real": "Only the tests with the vendors' own files in $RDMA_IMAGES_REAL_SOURCES.",
        "k": "Only tests whose names match, in pytest's syntax.",
    },
)
def run_tests(_: Context, unit: bool = False, exhaustive: bool = False, real: bool = False, k: str = "") -> None:
    """Run the tests, the fast ones first.

    Then those with a real engine, wheels, registries and virtual machines. Several at a time, where they share no part.
    """
    command = [sys.executable, "-m", "pytest", f"--numprocesses={WORKERS}"]
    if real:
        command += ["-m", "real and not e2e" if unit else "real"]
    elif unit:
        command += ["-m", "not e2e and not exhaustive"]
    elif not exhaustive:
        command += ["-m", "not exhaustive and not (real and e2e)"]
    command += [] if unit else ["--leave-nothing"]
    command += ["-k", k] if k else []
    raise Exit(code=subprocess.run(command, cwd=paths.PROJECT).returncode)
