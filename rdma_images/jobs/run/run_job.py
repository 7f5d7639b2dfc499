"""Run a job: submit it, follow it, collect its logs, remove it; and, to compare with, the same over TCP."""

import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path

from rdma_images.core import exit_codes, files, locking
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.paths import COMMAND, display_path
from rdma_images.core.progress import Progress
from rdma_images.facts.launchers import RunMethod
from rdma_images.inputs.project import Project
from rdma_images.jobs.results import run_files
from rdma_images.jobs.results.result import RunName
from rdma_images.jobs.run import kubernetes, record, sagemaker, script, slurm
from rdma_images.jobs.run.command import CommandError, ProgramMissingError
from rdma_images.jobs.run.follow import JobOutcome, StopRequest, follow, handle_stop_signals
from rdma_images.jobs.run.record import SubmissionRecord, remove_leftovers, remove_submission
from rdma_images.jobs.run.runner import Runner, Submission
from rdma_images.jobs.run.watch import LogWatch
from rdma_images.jobs.write import create, decisions, job_folder
from rdma_images.jobs.write.job import Job

RUNNERS: dict[str, Callable[[Submission], Runner]] = {
    "kubectl": kubernetes.Kubernetes,
    "arena": kubernetes.Arena,
    "slurm": slurm.Slurm,
    "sagemaker": sagemaker.SageMaker,
    "skypilot": script.skypilot,
    "docker": script.docker,
    # A user's own script must remove what it started when it gets SIGTERM.
    "script": lambda submission: script.Script(submission, ["bash", submission.file], []),
}
LAUNCHERS_WITH_EXCLUDE = ("kubectl", "slurm")  # whose nodes have the names that the preflight prints


class JobEndedError(RdmaImagesError):
    """A job without a result; `exit_code` is that of the signal that ended the command."""

    def __init__(self, message: str, signal: int = 0) -> None:
        super().__init__(message)
        self.exit_code = exit_codes.SIGNAL + signal if signal else exit_codes.FAILED


@dataclass(frozen=True)
class JobRunOptions:
    """The user's options of a run."""

    tcp: bool = False  # also the same job over TCP
    limit: float = 3600.0  # seconds for the job, and for the same over TCP
    keep: bool = False  # leave the job in its queue
    prints_log: bool = False  # what the job prints, while it runs


def run_job(folder: Path, project: Project, options: JobRunOptions, progress: Progress) -> Path:
    """Run the job in `folder`; return the folder of the run, with its logs.

    Raises RefusedError for what cannot be run, JobEndedError for a job that did not come to its end.
    """
    progress = _without_terminal_errors(progress)
    job = job_folder.load(folder)
    method = _run_method(job, project)
    tcp_files = _tcp_files(job, folder, project) if options.tcp else {}
    lock = f"job-{job.name}-{sha256(str(folder.absolute()).encode()).hexdigest()[:8]}"
    with locking.hold(lock, f"{COMMAND} job.run {folder}", timeout=0), handle_stop_signals() as stop:
        remove_leftovers(folder, partial(_earlier_runner, project), progress)
        run_folder = _new_folder(folder)
        job_folder.write(run_folder, {job_folder.JOB_FILE: files.read_text(folder / job_folder.JOB_FILE)})
        sources: dict[RunName, Path] = {"fabric": folder}
        if tcp_files:
            sources["tcp"] = run_folder / run_files.TCP
            job_folder.write(sources["tcp"], {**tcp_files, **job_folder.container_files(job, folder)})
        submissions = _Submissions(run_folder, options, stop, progress)
        for name, source in sources.items():
            submissions.run_one(name, _submission(method, source, run_folder if name == "fabric" else source))
    return run_folder


@dataclass
class _Submissions:
    """A job's submissions, one after the other: the job itself, and the same over TCP."""

    folder: Path
    options: JobRunOptions
    stop: StopRequest
    progress: Progress
    finished: list[SubmissionRecord] = field(default_factory=list)

    def run_one(self, name: RunName, submission: Submission) -> None:
        """Submit, follow, collect and remove. Raises JobEndedError where the job does not come to its end."""
        job, runner = submission.job, RUNNERS[submission.method.runner](submission)
        entry = self._record(SubmissionRecord(name, submission.tag, _now()))
        self._submit(runner, submission, entry)
        try:
            outcome = self._follow(runner, submission)
        except BaseException:
            remove_submission(runner, self.progress)
            self._record(replace(entry, cleanup="removed"))
            raise
        entry = replace(entry, ended=_now(), ending=outcome.ending, why=outcome.why)
        entry = self._record(replace(entry, cleanup="kept") if self.options.keep else entry)
        problem = ""
        if not self.options.keep:
            try:
                remove_submission(runner, self.progress)
                entry = self._record(replace(entry, cleanup="removed"))
            except CommandError as error:
                problem = f"\n{job.name} was not removed: {error}"
        self.finished.append(entry)
        self.progress(f"{job.name} {outcome.ending}, {entry.cleanup}; logs: {display_path(submission.logs)}")
        if outcome.ending in ("late", "interrupted", "unreachable"):
            logs = f"\nlogs so far: {display_path(submission.logs)}" if any(submission.logs.iterdir()) else ""
            fix = "" if self.stop.number else _where_to_look(submission)
            raise JobEndedError(f"{job.name}: {outcome.why}{logs}{problem}{fix}", self.stop.number)
        if problem:
            raise JobEndedError(
                f"{job.name} {outcome.ending}{problem}\n"
                f"`{COMMAND} verdict {display_path(self.folder)}` judges its logs; the next run removes what is left"
            )

    def _record(self, entry: SubmissionRecord) -> SubmissionRecord:
        record.write(self.folder, [*self.finished, entry])
        return entry

    def _submit(self, runner: Runner, submission: Submission, entry: SubmissionRecord) -> None:
        self.progress(f"submitting {submission.job.name}")
        try:
            runner.submit()
        except RdmaImagesError as error:
            with contextlib.suppress(RdmaImagesError):
                if not isinstance(error, ProgramMissingError):
                    runner.delete()  # a part of it may be there
                entry = replace(entry, cleanup="removed")
            self._record(replace(entry, ended=_now(), ending="not submitted", why=str(error)))
            fix = "" if "\n" in str(error) else _where_to_look(submission)  # some errors have their own
            raise JobEndedError(f"{submission.job.name} was not submitted: {error}{fix}") from None

    def _follow(self, runner: Runner, submission: Submission) -> JobOutcome:
        """Follow the job to its end, and collect its logs."""
        job = submission.job
        logs = LogWatch(submission.logs, self.progress, self.options.prints_log)
        outcome = follow(runner, self.stop, self.options.limit, self.progress, logs, job.settings.is_recovered)
        try:
            runner.collect()
        except CommandError as error:
            self.progress(f"not all logs could be collected: {error}")
        logs.look()
        if outcome.ending != "failed" or not logs.check_failure:
            return outcome
        if submission.method.runner in LAUNCHERS_WITH_EXCLUDE and (nodes := logs.nodes_to_exclude(job.nodes)):
            self.progress(f"the same job on other nodes: {COMMAND} job … --param exclude={nodes}")
        return replace(outcome, why=logs.check_failure)


def _new_folder(folder: Path) -> Path:
    """Return the folder of a new run, named by the current second, once it is free."""
    while True:
        run_folder = folder / record.RUNS / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        if not run_folder.exists():
            return run_folder
        time.sleep(0.1)


def _submission(method: RunMethod, source: Path, run_folder: Path) -> Submission:
    """Return a submission of the job in the folder `source`, whose logs are written below `run_folder`."""
    logs = run_folder / run_files.LOGS
    with files.raising_file_error(logs):
        logs.mkdir()
    return Submission(job_folder.load(source), method, source, logs, secrets.token_hex(3))


def _earlier_runner(project: Project, source: Path, tag: str) -> Runner:
    """Return the runner of a submission of an earlier run, by the job.json that it kept in `source`."""
    job = job_folder.load(source)
    method = _run_method(job, project)
    return RUNNERS[method.runner](Submission(job, method, source, source / run_files.LOGS, tag))


def _run_method(job: Job, project: Project) -> RunMethod:
    """Return how the job is driven. Raises RefusedError for a server or unknown launcher."""
    launcher = project.facts.launchers.launchers.get(job.launcher)
    if launcher is None or launcher.run is None:
        raise RefusedError(
            f"job.run cannot follow jobs of {job.launcher}\n"
            f"submit it with the commands of its README.md; {COMMAND} verdict reads its logs"
        )
    if "port" in job.parameters:
        raise RefusedError(
            f"{job.name} is a server, which does not end: job.run cannot follow it\nsubmit it as its README.md says"
        )
    return launcher.run


def _tcp_files(job: Job, folder: Path, project: Project) -> dict[str, str]:
    """Return the files of the same job over TCP. Raises RefusedError for edited files."""
    if job.tcp:
        raise RefusedError(f"{job.name} is itself over TCP\nrun the job over the fabric, with --compare tcp")
    for name, text in create.render_job_files(job, project).items():
        if name not in (job_folder.JOB_FILE, "README.md") and files.read_text(folder / name) != text:
            raise RefusedError(
                f"{folder / name} was edited: the same job over TCP is generated, "
                "and would differ in more than the network\n"
                f"write the job again with `{COMMAND} job`, or run both and use `{COMMAND} job.compare`"
            )
    return create.render_job_files(decisions.job_over_tcp(job, project.facts), project)


def _without_terminal_errors(progress: Progress) -> Progress:
    """Return `progress`, also usable where the terminal is gone."""

    def quiet(line: str) -> None:
        with contextlib.suppress(OSError):
            progress(line)

    return quiet


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _where_to_look(submission: Submission) -> str:
    """Return a line with where the commands are that show more of a job."""
    return f"\n{display_path(submission.files)}/README.md has the commands that show more"
