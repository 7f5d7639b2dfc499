"""Logs that somebody collected, in whatever folder, become a result."""

import os
from collections.abc import Sequence
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.jobs.results import expectations, from_logs, job_spec, nccl_tests_json, run_folder
from rdma_images.jobs.results.result import Result
from rdma_images.jobs.write import folder

NO_LOGS = (run_folder.RESULT.name, run_folder.PAGE)


def of_logs(
    paths: Sequence[Path],
    tcp: Path | None = None,
    job: Path | None = None,
    instance: str = "",
    nodes: int | None = None,
) -> Result:
    """The result of logs and folders of logs, of the folder of a run, or of the result.json that one was written to.

    `tcp` has the logs of the same job over TCP. `instance` and `nodes` are what is known of a job without job.json.
    Raises RdmaImagesError for what cannot be read, RefusedError for what contradicts itself.
    """
    first = paths[0]
    if len(paths) == 1 and first.name == run_folder.RESULT.name:
        return run_folder.load(first)
    found = folder.read(job_spec.NOTE, job) if job else run_folder.job(first) if first.is_dir() else None
    if found and (instance or nodes):
        raise RefusedError(
            f"job.json of {found.name} has its instance type and nodes\nleave out --instance and --nodes"
        )
    of_fabric = [log for path in paths for log in logs(path)]
    over_tcp = list(logs(tcp) if tcp else run_folder.logs(first, "tcp") if first.is_dir() else ())
    of_fabric, over_tcp = [log.absolute() for log in of_fabric], [log.absolute() for log in over_tcp]
    folders = [first.absolute()] if first.is_dir() else [log.parent for log in of_fabric]
    base = Path(os.path.commonpath([*folders, *(log.parent for log in over_tcp)]))
    return from_logs.result(of_fabric, found, over_tcp, base, expectations.held(found, instance, nodes))


def result(path: Path) -> Result:
    """The result at `path`: a result.json, the folder of a run that has one, or what the logs there come to."""
    if path.is_dir() and (path / run_folder.RESULT.name).is_file():
        return run_folder.load(path)
    is_result = path.suffix == ".json" and not nccl_tests_json.is_one(path)
    return run_folder.load(path) if is_result else of_logs([path])


def logs(path: Path) -> tuple[Path, ...]:
    """The logs at `path`: itself, or what is in it or in its logs/. Raises RdmaImagesError where there is none."""
    if not path.is_dir():
        return (path,)
    no_logs = {*NO_LOGS, *folder.written(path)}
    found = run_folder.logs(path) or tuple(
        one for one in files.entries(path) if one.is_file() and one.name not in no_logs
    )
    if not found:
        raise RdmaImagesError(f"{path}: no logs in this folder\ngive the folder of a run, or its logs")
    return found
