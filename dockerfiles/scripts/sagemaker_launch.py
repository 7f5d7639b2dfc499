"""torchrun on one host of a SageMaker training job: where it meets the others, what it is sent, and why it failed."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from sagemaker_job import JobError, TrainingJob, say

PORT = 7777  # of torchrun's rendezvous on the first host
WAIT = 15 * 60  # seconds for a host's name: a job's containers start minutes apart
TAIL = 64 * 1024  # bytes of the processes' errors, of which the reason of a failure is told
TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<error>\S.*)", re.MULTILINE)


def wait_for(hosts: Sequence[str], limit: float = WAIT) -> None:
    """Return when every host's name has an address. Raises JobError after `limit` seconds."""
    end = time.monotonic() + limit
    for host in hosts:
        pause = 0.1
        while not has_address(host):
            if time.monotonic() + pause > end:
                raise JobError(
                    f"{host} has no address after {limit:g} s.\nCheck that its container has started: see its log."
                )
            if pause > 1:
                say(f"waiting for {host}")
            time.sleep(pause)
            pause = min(pause * 2, 15)


def has_address(host: str) -> bool:
    """Return whether a name can be resolved."""
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False


def torchrun_options(job: TrainingJob, processes: int) -> list[str]:
    """Return the options with which torchrun starts this host's part of the job."""
    if len(job.hosts) == 1:
        return ["--standalone", f"--nproc-per-node={processes}"]
    return [
        f"--nnodes={len(job.hosts)}",
        f"--nproc-per-node={processes}",
        f"--node-rank={job.hosts.index(job.current)}",
        f"--master-addr={job.hosts[0]}",
        f"--master-port={PORT}",
    ]


def torchrun(options: Sequence[str]) -> int:
    """Run torchrun in this process. Return the exit code of the rank that failed first; torchrun's own would be 1."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as start

    try:
        start(options)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        say(f"rank {rank} ended with {failure.exitcode}")
        return exit_code(failure.exitcode)
    return 0


def exit_code(ended: int) -> int:
    """Return a process's exit code as a shell gives it: 128 and the signal's number where a signal ended it."""
    return 128 - ended if ended < 0 else ended


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> tuple[int, str]:
    """Run a launcher of processes to its end. Return its exit code and, unless that is 0, why it failed.

    SIGTERM goes to the processes that it launched, and not to itself: torchrun gives them 30 seconds, SageMaker 120.
    """
    process = subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.PIPE, start_new_session=True)
    stopped: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        stopped.append(number)
        say("SIGTERM: the processes are told, and may save")
        for pid in children(process.pid) or [process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    signal.signal(signal.SIGTERM, forward)
    tail = bytearray()
    assert process.stderr
    reader = threading.Thread(target=copy_errors, args=(process.stderr, tail), daemon=True)
    reader.start()
    code = exit_code(process.wait())
    reader.join(5)  # what a process left behind may hold the pipe
    return code, reason(code, tail.decode("utf-8", "replace"), bool(stopped)) if code else ""


def copy_errors(stream: BinaryIO, tail: bytearray) -> None:
    """Pass on what is written to `stream`, at once, and keep the end of it."""
    while data := os.read(stream.fileno(), 1 << 16):
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        tail += data
        del tail[:-TAIL]


def children(parent: int) -> list[int]:
    """Return the processes that a process started."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            after_name = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(after_name[1]) == parent:
                pids.append(int(stat.parent.name))
    return pids


def reason(code: int, errors: str, stopped: bool) -> str:
    """Return why the processes failed, the most telling first: rank, first error, and where that was raised."""
    ranks = re.findall(r"^train: rank (\d+) ended with -?\d+$", errors, re.MULTILINE)
    subject = f"rank {ranks[-1]} ended with {code}" if ranks else f"the job ended with {code}"
    # torch puts the rank before each line of a traceback as soon as the ranks have met.
    lines_of_rank = re.findall(rf"^\[rank{ranks[-1]}\]: ?(.*\n)", errors, re.MULTILINE) if ranks else []
    first = TRACEBACK.search("".join(lines_of_rank)) or TRACEBACK.search(errors)
    text = f"{subject}: {first['error'][:400]}\n{first[0][-550:]}" if first else f"{subject}\n{errors.strip()[-900:]}"
    return f"after SIGTERM {text}" if stopped else text
