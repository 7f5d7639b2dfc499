"""Follow what pods print: an evicted pod takes its log with it, and kubelets keep the end of long ones."""

import contextlib
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from rdma_images.jobs.run.command import start

MAX_PODS = 500  # pods: a log of each is open at the same time, and a process may often have 1024 files
RESTART_SECONDS = 30.0  # seconds until a program that ended, as where the network broke, is started again
# What kubectl puts before a line: its pod and container, and when it was printed, to the nanosecond.
PREFIX = re.compile(rb"\[pod/(?P<container>(?P<pod>[a-z0-9.-]{1,253})/[^\]/]{1,253})\] (?P<time>\d{4}-\S{1,40}) ")


class Streams:
    """Follow all pods with one kubectl; another replaces it where pods were started after it."""

    def __init__(self, logs: Path) -> None:
        """Take the folder with a log for each pod."""
        self._logs = logs
        self._file = logs.with_name(".streamed")  # what the running kubectl prints
        self._process: subprocess.Popen[str] | None = None
        self._offset = 0  # in that file, to which it was read
        self._pods: frozenset[str] = frozenset()
        self._begun = 0.0
        self._last_times: dict[bytes, bytes] = {}  # when each container printed its last line
        self._repeated: dict[bytes, bytes] = {}  # the same, when the running kubectl started with the first line

    def follow(self, pods: frozenset[str], program: Sequence[str], selector: str) -> None:
        """Follow the running `pods`, by their uids, which `selector` selects."""
        has_ended = self._process is not None and self._process.poll() is not None
        restart = has_ended and time.monotonic() > self._begun + RESTART_SECONDS
        if len(pods) > MAX_PODS or (pods <= self._pods and not restart):
            return
        self.stop(is_last=False)
        self._begun, self._offset, self._repeated = time.monotonic(), 0, dict(self._last_times)
        arguments = ["logs", "-f", "-l", selector, "--all-containers", "--prefix", "--timestamps", "--ignore-errors"]
        self._process = start(
            [*program, *arguments, "--tail=-1", f"--max-log-requests={MAX_PODS * 4}"],
            None,
            self._file,
            errors=subprocess.DEVNULL,
        )
        self._pods = pods

    def stop(self, is_last: bool = True) -> None:
        """End the program, and read the rest; a line that has not ended, only if no other program repeats it."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self.read(is_last)
            self._process = None
            self._file.unlink()

    def read(self, is_last: bool = False) -> None:
        """Append what the program printed since the last call to the logs of the pods."""
        if not self._process:
            return
        with contextlib.ExitStack() as stack:
            files: dict[bytes, BinaryIO] = {}
            stream = stack.enter_context(self._file.open("rb"))
            stream.seek(self._offset)
            for line in stream:
                if not line.endswith(b"\n") and not is_last:
                    return
                self._offset += len(line)
                match = PREFIX.match(line)
                if not match or match["time"] <= self._repeated.get(match["container"], b""):
                    continue
                self._last_times[match["container"]] = match["time"]
                if (pod := match["pod"]) not in files and len(files) < MAX_PODS:
                    files[pod] = stack.enter_context((self._logs / f"{pod.decode()}.log").open("ab"))
                if pod in files:
                    files[pod].write(line[match.end() :])
