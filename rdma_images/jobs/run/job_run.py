"""Run a job: submit it, follow it, keep its logs, remove it; and, to compare with, the same over TCP."""

import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from rdma_images.core import files, locking
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.paths import COMMAND, shown
from rdma_images.core.progress import Progress
from rdma_images.facts.launchers import Run
from rdma_images.facts.troubleshooting import Troubleshooting
from rdma_images.jobs.results import run_folder, troubleshooting
from rdma_images.jobs.results.result import RunName
from rdma_images.jobs.run import kubernetes, record, sagemaker, script, slurm
from rdma_images.jobs.run.follow import Ended, Stop, follow, remove, stoppable
from rdma_images.jobs.run.record import Entry
from rdma_images.jobs.run.runner import CommandError, Leg, Runner
from rdma_images.jobs.write import compose, create, folder
from rdma_images.jobs.write.job import Job
from rdma_images.selection.project import Project

RUNNERS: dict[str, Callable[[Leg], Runner]] = {
    "kubectl": kubernetes.Kubernetes,
    "arena": kubernetes.Arena,
    "slurm": slurm.Slurm,
    "sagemaker": sagemaker.SageMaker,
    "skypilot": script.skypilot,
    "docker": script.docker,
    "script": script.own,
}


class EndedError(RdmaImagesError):
    """A job that brought no result. `exit_code` is that of a command ended by a signal, where it was one."""

    def __init__(self, message: str, signal: int = 0, about: str = "") -> None:
        super().__init__(message)
        self.exit_code = 128 + signal if signal else 1
        self._about = about

    def details(self) -> str | None:
        """What troubleshooting knows of it."""
        return self._about or None


@dataclass(frozen=True)
class Options:
    """What the user asks of a run."""

    tcp: bool = False  # also the same job over TCP
    limit: float = 3600.0  # seconds for a leg
    keep: bool = False  # leave the job in its queue


def run(place: Path, project: Project, options: Options, say: Progress) -> Path:
    """Run the job in the folder `place`; returns the folder of the run, with the logs of its legs.

    Raises RefusedError for what cannot be run, EndedError for a job that did not come to its end.
    """
    say = _whoever_hears(say)
    job = folder.load(place)
    how = _how(job, project)
    other = _over_tcp(job, place, project) if options.tcp else {}
    lock = f"job-{job.name}-{sha256(str(place.absolute()).encode()).hexdigest()[:8]}"
    with locking.hold(lock, f"{COMMAND} job.run {place}", patience=0), stoppable() as stop:
        _tidy(place, how, say)
        here = _new_folder(place)
        folder.write(here, {folder.NOTE: files.read(place / folder.NOTE)})
        legs: dict[RunName, Leg] = {"fabric": _leg(job, how, place, here)}
        if other:
            folder.write(here / run_folder.TCP, other)
            legs["tcp"] = _leg(folder.load(here / run_folder.TCP), how, here / run_folder.TCP, here / run_folder.TCP)
        session = _Session(here, options, stop, say, project.facts.troubleshooting)
        for name, leg in legs.items():
            session.run(name, leg)
    return here


@dataclass
class _Session:
    """The legs of one run, one after the other."""

    here: Path
    options: Options
    stop: Stop
    say: Progress

    known: Troubleshooting
    done: list[Entry] = field(default_factory=list)

    def run(self, name: RunName, leg: Leg) -> None:
        """Run a leg. Raises EndedError where it does not come to its end."""
        runner = RUNNERS[leg.run.how](leg)
        entry = Entry(name, leg.tag, _now())
        self._note(entry)
        self._submit(runner, leg, entry)
        try:
            ended = self._followed(runner)
        except BaseException:
            remove(runner, self.say)
            self._note(replace(entry, left="removed"))
            raise
        entry = replace(
            entry, ended=_now(), how=ended.how, why=ended.why, left="kept" if self.options.keep else "there"
        )
        self._note(entry)
        if not self.options.keep:
            remove(runner, self.say)
            entry = replace(entry, left="removed")
            self._note(entry)
        self.done.append(entry)
        self.say(f"{leg.job.name} {ended.how}, {entry.left}; logs: {shown(leg.logs)}")
        if ended.how in ("late", "interrupted", "unreachable"):
            logs = f"\nlogs so far: {shown(leg.logs)}" if any(leg.logs.iterdir()) else ""
            about = troubleshooting.fitting_entries([ended.why], leg.job.fabric, self.known)
            fix = "" if about or self.stop.number else f"\n{shown(leg.files)}/README.md has the commands that show more"
            raise EndedError(f"{leg.job.name}: {ended.why}{logs}{fix}", self.stop.number, about)

    def _note(self, entry: Entry) -> None:
        record.write(self.here, [*self.done, entry])

    def _submit(self, runner: Runner, leg: Leg, entry: Entry) -> None:
        self.say(f"submitting {leg.job.name}")
        try:
            runner.submit()
        except RdmaImagesError as error:
            with contextlib.suppress(RdmaImagesError):
                runner.delete()  # a part of it may be there
                entry = replace(entry, left="removed")
            self._note(replace(entry, ended=_now(), how="not submitted", why=str(error)))
            about = troubleshooting.fitting_entries([str(error)], leg.job.fabric, self.known)
            explained = about or "\n" in str(error)
            fix = "" if explained else f"\n{shown(leg.files)}/README.md has the commands that show more"
            raise EndedError(f"{leg.job.name} was not submitted: {error}{fix}", about=about) from None

    def _followed(self, runner: Runner) -> Ended:
        """Follow the job to its end, and collect its logs."""
        ended = follow(runner, self.stop, self.options.limit, self.say)
        try:
            runner.collect()
        except CommandError as error:
            self.say(f"not all logs could be collected: {error}")
        return ended


def _new_folder(place: Path) -> Path:
    """The folder of a new run, by the second that it begins in; the next one where that has a run already."""
    while True:
        here = place / record.RUNS / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        if not here.exists():
            return here
        time.sleep(0.1)


def _leg(job: Job, how: Run, source: Path, here: Path) -> Leg:
    logs = here / run_folder.LOGS
    with files.as_file_error(logs):
        logs.mkdir()
    return Leg(job, how, source, logs, secrets.token_hex(3))


def _how(job: Job, project: Project) -> Run:
    """How the job's launcher is driven. Raises RefusedError for one that only its README knows."""
    launcher = project.facts.launchers.launchers.get(job.launcher)
    if launcher is None or launcher.run is None:
        raise RefusedError(
            f"job.run cannot follow jobs of {job.launcher}: facts/launchers.yaml has no `run` for it\n"
            f"submit it as its README.md says; {COMMAND} job.result reads its logs"
        )
    return launcher.run


def _over_tcp(job: Job, place: Path, project: Project) -> dict[str, str]:
    """The files of the same job over TCP. Raises RefusedError where the job's own are not as they were generated."""
    if job.tcp:
        raise RefusedError(f"{job.name} is itself over TCP\nrun the job over the fabric, with --compare tcp")
    for name, text in create.files(job, project).items():
        if name not in (folder.NOTE, "README.md") and files.read(place / name) != text:
            raise RefusedError(
                f"{place / name} was edited: the leg over TCP is generated, and would differ in more than the network\n"
                f"write the job again with `{COMMAND} job`, or run both and use `{COMMAND} job.compare`"
            )
    return create.files(compose.tcp_leg(job, project.facts), project)


def _tidy(place: Path, how: Run, say: Progress) -> None:
    """Remove what earlier runs of this job submitted and, being killed, could not remove."""
    for here, entries in record.left_behind(place):
        for number, one in enumerate(entries):
            if one.left == "there":
                say(f"removing what the run of {here.name} left")
                of = here / run_folder.TCP if one.leg == "tcp" else place
                remove(RUNNERS[how.how](Leg(folder.load(of), how, of, here / run_folder.LOGS, one.tag)), say)
                entries[number] = replace(one, left="removed")
        record.write(here, entries)


def _whoever_hears(say: Progress) -> Progress:
    """`say`, also where the terminal is gone: the job has to be removed all the same."""

    def quiet(line: str) -> None:
        with contextlib.suppress(OSError):
            say(line)

    return quiet


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
