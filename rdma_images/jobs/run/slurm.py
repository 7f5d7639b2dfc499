"""Run jobs on Slurm: sbatch, squeue, scontrol, scancel. The job's comment is the run's tag."""

import re
import time

from rdma_images.jobs.run.command import CommandError, output
from rdma_images.jobs.run.runner import JobState, Submission

WAITING = (
    *("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SUSPENDED", "STOPPED", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
)
RUNNING = ("RUNNING", "CONFIGURING", "COMPLETING", "STAGE_OUT", "SIGNALING", "RESIZING")
CANCEL_SECONDS = 60.0  # seconds until a cancelled job has left the queue


class Slurm:
    """A job in Slurm's queue."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._id = ""

    def submit(self) -> None:
        """Submit the script from the job's folder; it runs in the folder of logs, where its output goes."""
        logs, tag = self._submission.logs.absolute(), self._submission.tag
        command = ["sbatch", "--parsable", f"--comment={tag}", f"--chdir={logs}", str(self._submission.file)]
        self._id = output(command, folder=self._submission.files).strip().partition(";")[0]

    def state(self) -> JobState:
        """Return Slurm's state of the job with its reason, and nodes that cannot be used."""
        described = output(["scontrol", "show", "job", "--oneliner", self._id])
        fields = dict(re.findall(r"(\w+)=(\S*)", described))
        name, reason = fields["JobState"], fields.get("Reason", "").replace("_", " ")
        nodes = "" if fields.get("NodeList", "(null)") == "(null)" else f" on {fields['NodeList']}"
        if name in WAITING:
            return JobState("waiting", "; ".join(filter(None, (f"{name}, reason: {reason}", _unusable_nodes()))))
        if name in RUNNING:
            return JobState("running", f"{name}{nodes}")
        if name == "COMPLETED":
            return JobState("succeeded")
        code = fields.get("ExitCode", "")
        sentence = f"Slurm says {name}{nodes}, exit code {code}" + (f", reason: {reason}" if reason != "None" else "")
        return JobState("failed", "; ".join(filter(None, (sentence, _unusable_nodes()))))

    def collect(self) -> None:
        """Do nothing: the script's output is in the folder of logs."""

    def delete(self) -> None:
        """Cancel what has this run's tag, and wait until the queue has nothing of it."""
        deadline = time.monotonic() + CANCEL_SECONDS
        while ids := self._queued_ids():
            output(["scancel", *ids])
            if time.monotonic() > deadline:
                raise CommandError(f"job {', '.join(ids)} is still in the queue\nscancel it: scancel {' '.join(ids)}")
            time.sleep(0.3)

    def _queued_ids(self) -> list[str]:
        """Return the ids of what this run submitted and is in the queue."""
        lines = output(["squeue", "--me", "--noheader", "--format=%i|%k"]).splitlines()
        return [
            number
            for number, _, comment in (line.strip().partition("|") for line in lines)
            if comment == self._submission.tag
        ]


def _unusable_nodes() -> str:
    """Return the nodes that take no job, each with the reason that was given for it."""
    command = ["sinfo", "--noheader", "--Node", "--states=drain,down,fail", "--format=%N is %T: %E"]
    return "; ".join(dict.fromkeys(filter(None, output(command).splitlines())))
