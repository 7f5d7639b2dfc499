"""The task for continuous integration: ci.matrix."""

from invoke.context import Context

from rdma_images.cli.output import show
from rdma_images.cli.verb import CHOICE, verb
from rdma_images.core.progress import progress
from rdma_images.inputs import project, target_options


@verb(
    "ci.matrix --changed-since origin/main",
    help={
        "target": CHOICE["target"],
        "changed-since": "A commit: only images whose inputs have changed since.",
        "runner": "platform=label of the machines for a platform; may be given more than once.",
    },
    iterable=("target", "runner"),
)
def matrix(
    _: Context, target: list[str] | None = None, changed_since: str | None = None, runner: list[str] | None = None
) -> None:
    """Print the matrix for GitHub Actions."""
    from rdma_images.ci import ci_jobs, select

    loaded_project = project.load()
    all_images = target_options.chosen_images(loaded_project, target, True, None)
    images = all_images if changed_since is None else select.images_changed_since(changed_since, all_images, progress)
    runners = target_options.parse_changes(runner, "--runner", "platform=label")
    show(ci_jobs.as_github(ci_jobs.jobs(images, all_images, loaded_project.matrix, runners)))
