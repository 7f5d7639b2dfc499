"""Make a result of logs that somebody collected, in whatever folder."""

import os
from collections.abc import Sequence
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RefusedError
from rdma_images.jobs.results import expectations, from_logs, nccl_tests_json, run_folder
from rdma_images.jobs.results.result import Result
from rdma_images.jobs.write import folder

NO_LOGS = (run_folder.RESULT.name, run_folder.PAGE)


def read_logs(
    paths: Sequence[Path],
    tcp: Path | None = None,
    job: Path | None = None,
    instance: str = "",
    nodes: int | None = None,
) -> Result:
    """Return the result of logs and folders of logs, of the folder of a run, or of an existing result.json.

    Args:
        tcp: The logs of the same job over TCP.
        instance: The instance type of a job without job.json.
        nodes: The number of nodes of a job without job.json.

    Raises:
        RdmaImagesError: Something cannot be read.
        RefusedError: The arguments contradict each other.
    """
    first_path = paths[0]
    if len(paths) == 1 and first_path.name == run_folder.RESULT.name:
        return run_folder.load(first_path)
    spec = folder.load(job) if job else run_folder.read_job(first_path) if first_path.is_dir() else None
    if spec and (instance or nodes):
        raise RefusedError(f"job.json of {spec.name} has its instance type and nodes\nleave out --instance and --nodes")
    fabric_logs = [log for path in paths for log in find_logs(path)]
    tcp_logs = list(find_logs(tcp) if tcp else run_folder.logs(first_path, "tcp") if first_path.is_dir() else ())
    fabric_logs, tcp_logs = [log.absolute() for log in fabric_logs], [log.absolute() for log in tcp_logs]
    folders = [first_path.absolute()] if first_path.is_dir() else [log.parent for log in fabric_logs]
    base = Path(os.path.commonpath([*folders, *(log.parent for log in tcp_logs)]))
    return from_logs.job_result(fabric_logs, spec, tcp_logs, base, expectations.job_expectations(spec, instance, nodes))


def read_result(path: Path) -> Result:
    """Return the result at `path`: a result.json, the folder of a run that has one, or that of the logs there."""
    if path.is_dir() and (path / run_folder.RESULT.name).is_file():
        return run_folder.load(path)
    is_result = path.suffix == ".json" and not nccl_tests_json.is_json_report(path)
    return run_folder.load(path) if is_result else read_logs([path])


def find_logs(path: Path) -> tuple[Path, ...]:
    """Return the logs at `path`: itself, or what is in it or in its logs/. Raises RefusedError for none."""
    if not path.is_dir():
        return (path,)
    no_logs = {*NO_LOGS, *folder.written_files(path)}
    log_files = run_folder.logs(path) or tuple(
        entry for entry in files.list_folder(path) if entry.is_file() and entry.name not in no_logs
    )
    if not log_files:
        raise RefusedError(f"{path}: no logs in this folder\ngive the folder of a run, or its logs")
    return log_files
