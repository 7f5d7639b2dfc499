"""The tasks of those who work on the project, and of its CI: facts.update, matrix.schema, ci.matrix and test."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Annotated

from invoke.exceptions import Exit

from rdma_images.cli.output import show
from rdma_images.cli.task import Targets, load_project, task
from rdma_images.core import paths
from rdma_images.core.progress import progress
from rdma_images.inputs import target_options

# Two a core, as many tests wait for a server, a scheduler or a container; more than eight would find no free part.
WORKERS = min(8, 2 * len(os.sched_getaffinity(0)))


@task("facts.update", "facts.update --write", name="facts.update")
def update(write: Annotated[bool, "Add a row to facts/ for each new release."] = False) -> None:
    """Look for releases that the facts lack.

    Reads the package index and the vendors' pages.
    """
    from rdma_images.maintain import facts_update
    from rdma_images.maintain.facts_update import reading

    current = load_project()
    changes = facts_update.update(current.facts, current.mirrors, progress)
    if write:
        facts_update.write(changes)
    show(reading.update_table(changes, written=write))


@task("matrix.schema", name="matrix.schema")
def schema() -> None:
    """Write the JSON schemas of the files that users write.

    matrix.yaml, mirrors.yaml and registries.yaml name theirs in the first line, for editors to complete and check them.
    """
    from rdma_images.maintain import schemas

    show(*(paths.display_path(path) for path in schemas.write(paths.PROJECT)))


@task("ci.matrix --changed-since origin/main", name="ci.matrix")
def ci_matrix(
    target: Targets = (),
    changed_since: Annotated[str, "COMMIT | Only images whose inputs have changed since."] = "",
    runner: Annotated[Sequence[str], "PLATFORM=LABEL | Label of the machines for a platform."] = (),
) -> None:
    """Print the matrix for GitHub Actions."""
    from rdma_images.ci import ci_jobs, select

    current = load_project(measures=False)
    all_images = target_options.chosen_images(current, target, True, None)
    images = select.images_changed_since(changed_since, all_images, progress) if changed_since else all_images
    runners = target_options.parse_pairs(runner, "--runner", "platform=label")
    show(ci_jobs.as_github(ci_jobs.jobs(images, all_images, runners)))


@task("test --unit", name="test")
def run_tests(
    unit: Annotated[bool, "Only the fast tests, which need no engine."] = False,
    exhaustive: Annotated[bool, "Also each fault that a validator finds, and each broken data path."] = False,
) -> None:
    """Run the tests, the fast ones first.

    Then those with a real engine, wheels, registries and virtual machines. Several at a time, where they share no part.
    """
    command = [sys.executable, "-m", "pytest", f"--numprocesses={WORKERS}"]
    if unit:
        command += ["-m", "not e2e and not exhaustive"]
    elif not exhaustive:
        command += ["-m", "not exhaustive and not (real and e2e)"]
    command += [] if unit else ["--leave-nothing"]
    raise Exit(code=subprocess.run(command, cwd=paths.PROJECT).returncode)
