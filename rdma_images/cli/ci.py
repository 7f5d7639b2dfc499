"""The tasks for continuous integration: ci.*."""

from invoke.context import Context
from invoke.exceptions import Exit

from rdma_images.cli.output import show
from rdma_images.cli.publishing import publisher
from rdma_images.cli.verb import CHOICE, JSON, PUBLISHING, verb
from rdma_images.core.progress import progress
from rdma_images.inputs import project, target_options


@verb(
    "ci.matrix --shard 1/4 --changed-since origin/main",
    help={
        "target": CHOICE["target"],
        "shard": "i/n: only part i of n disjoint parts; images with the same wheels stay together.",
        "changed-since": "A commit: only images whose inputs have changed since.",
        "runner": "platform=label of the machines for a platform; may be given more than once.",
    },
    iterable=("target", "runner"),
)
def matrix(
    _: Context,
    target: list[str] | None = None,
    shard: str | None = None,
    changed_since: str | None = None,
    runner: list[str] | None = None,
) -> None:
    """Print the matrix for GitHub Actions."""
    from rdma_images.ci import ci_jobs, select

    loaded_project = project.load()
    all_images = target_options.chosen_images(loaded_project, target, True, None)
    images = select.select_images(all_images, shard, changed_since, progress)
    runners = target_options.parse_changes(runner, "--runner", "platform=label")
    show(ci_jobs.as_github(ci_jobs.jobs(images, all_images, loaded_project.matrix, runners)))


@verb("ci.join --to team-ecr", help=PUBLISHING | JSON, iterable=["to"])
def join(_: Context, to: list[str] | None = None, sign: str = "", json: bool = False) -> None:
    """Join the platforms of images into one index each."""
    from rdma_images.publish import platform_index, publication_table
    from rdma_images.registry import registries

    loaded_project = project.load()
    images = target_options.chosen_images(loaded_project, None, True, None)
    chosen_registries = registries.load().pick(to or ())
    results = list(platform_index.join(images, loaded_project.matrix, chosen_registries, publisher(sign)))
    show(publication_table.as_json(results) if json else publication_table.join_text(results))
    if any(result.error for result in results):
        raise Exit(code=1)
