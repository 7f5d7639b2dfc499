"""Every task, in its group."""

from invoke.collection import Collection

from rdma_images.cli import (
    building,
    ci,
    engines,
    jobs,
    maintaining,
    output,
    parsing,
    planning,
    publishing,
    results,
    running,
    scanning,
    starting,
)
from rdma_images.core import paths


def namespace() -> Collection:
    """Return invoke's tasks: of a checkout, or of an installation, which has `init`."""
    output.replace_unencodable()
    parsing.install()
    tasks = Collection(
        planning.plan,
        planning.describe,
        planning.sources,
        planning.lock,
        planning.render,
        building.build,
        building.validate,
        running.run,
        building.report,
        results.verdict,
        scanning.scan,
        publishing.publish,
        publishing.verify,
        jobs.cluster,
    )
    tasks.add_task(starting.init if paths.INSTALLED else maintaining.run_tests)
    job_tasks = (jobs.job, jobs.job_launchers, jobs.job_check, jobs.job_preflight, jobs.job_run)
    tasks.add_collection(Collection("job", *job_tasks, *results.tasks))
    tasks.add_collection(Collection("facts", maintaining.update))
    tasks.add_collection(Collection("matrix", maintaining.schema))
    tasks.add_collection(Collection("engine", engines.up, engines.status, engines.prune, engines.down))
    tasks.add_collection(Collection("ci", ci.matrix))
    return tasks
