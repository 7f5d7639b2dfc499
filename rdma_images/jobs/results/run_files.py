"""The folder of a run: its logs, and the result that was read from them.

<UTC time>/job.json             what was asked for; without it that of the job's folder, two levels up
<UTC time>/objects.json         what was created on Kubernetes, so that a later run can remove it
<UTC time>/logs/<rank or pod>.log
<UTC time>/tcp/logs/…           the same job over TCP
<UTC time>/result.json, result.html
"""

from pathlib import Path

from rdma_images.core import atomic, files
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.core.step_files import step_file
from rdma_images.jobs.results import result_table
from rdma_images.jobs.results.result import Result, RunName
from rdma_images.jobs.write.job import Job
from rdma_images.jobs.write.job_folder import JOB

RESULT = step_file("result.json", "verdict DIR", Result)
PAGE, LOGS, TCP = "result.html", "logs", "tcp"


def logs(folder: Path, run: RunName = "fabric") -> tuple[Path, ...]:
    """Return the logs of a run in their order; none where there was no such run."""
    parent = folder / TCP / LOGS if run == "tcp" else folder / LOGS
    return tuple(path for path in files.list_folder(parent) if path.is_file())


def read_job(folder: Path) -> Job | None:
    """Return the job.json of the run, or of the job's folder; None where neither has one."""
    jobs = (JOB.read_file(parent / JOB.name) for parent in (folder, *folder.absolute().parents[:2]))
    return next(filter(None, jobs), None)


def write(result: Result, folder: Path) -> Path:
    """Write result.json and result.html into `folder` and return the path of the first."""
    path = folder / RESULT.name
    RESULT.write_file(path, result)
    atomic.write(folder / PAGE, result_table.result_html(result))
    return path


def load(path: Path) -> Result:
    """Return the result at `path`, a file or a run's folder. Raises RefusedError for none."""
    path = path / RESULT.name if path.is_dir() else path
    result = RESULT.read_file(path)
    if result is None:
        raise RefusedError(f"{path}: no result here\n{COMMAND} verdict DIR makes one from the logs of a run")
    return result
