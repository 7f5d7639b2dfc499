"""Follow what pods print: an evicted pod takes its log with it, and kubelets keep the end of long ones."""

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from rdma_images.jobs.run.command import start

FOLDER = ".streamed"  # in the folder of logs
MAX_PODS = 500  # pods: a log of each is open at the same time, and a process may often have 1024 files
RESTART_SECONDS = 30.0  # seconds until a program that ended, as where the network broke, is started again
NO_LOG = b"unable to retrieve container logs for "  # what kubelets give in place of a log that is gone
PREFIX = re.compile(rb"\[pod/(?P<pod>[a-z0-9.-]{1,253})/[^\]/]{1,253}\] ")


class Streams:
    """Follow all pods with one kubectl; another replaces it where pods were started after it."""

    def __init__(self, logs: Path) -> None:
        """Take the folder with a file for each pod."""
        self._logs = logs
        self._folder = logs / FOLDER
        self._process: subprocess.Popen[str] | None = None
        self._pods: frozenset[str] = frozenset()
        self._count = 0
        self._begun = 0.0

    def follow(self, pods: frozenset[str], program: Sequence[str], selector: str) -> None:
        """Follow the running `pods`, by their uids, which `selector` selects."""
        has_ended = self._process is not None and self._process.poll() is not None
        restart = has_ended and time.monotonic() > self._begun + RESTART_SECONDS
        if len(pods) > MAX_PODS or (pods <= self._pods and not restart):
            return
        self.stop()
        self._folder.mkdir(exist_ok=True)
        self._count += 1
        self._begun = time.monotonic()
        arguments = ["logs", "-f", "-l", selector, "--all-containers", "--prefix", "--ignore-errors", "--tail=-1"]
        self._process = start(
            [*program, *arguments, f"--max-log-requests={MAX_PODS * 4}"],
            None,
            self._folder / str(self._count),
            errors=subprocess.DEVNULL,
        )
        self._pods = pods

    def stop(self) -> None:
        """End the program."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def merge(self) -> set[Path]:
        """Replace each collected log that is missing, or has less than its pod printed. Returns those logs."""
        self.stop()
        replaced = set()
        for number in range(1, self._count + 1):
            for path in _split_by_pod(self._folder / str(number)):
                collected = self._logs / path.name
                if path.stat().st_size > _log_size(collected):
                    replaced.add(path.replace(collected))
        shutil.rmtree(self._folder, ignore_errors=True)
        self._count = 0
        return replaced


def _log_size(log: Path) -> int:
    """Return a file's bytes of log: 0 if it is missing, or says that the log is gone."""
    if not log.exists():
        return 0
    with log.open("rb") as file:
        return 0 if file.read(len(NO_LOG)) == NO_LOG else log.stat().st_size


def _split_by_pod(stream: Path) -> list[Path]:
    """Split a stream of several pods' lines into a log for each pod."""
    folder = stream.with_name(f"{stream.name}.pods")
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        files: dict[Path, BinaryIO] = {}
        for line in stack.enter_context(stream.open("rb")):
            if match := PREFIX.match(line):
                path = folder / f"{match['pod'].decode()}.log"
                if path not in files and len(files) < MAX_PODS:
                    files[path] = stack.enter_context(path.open("wb"))
                if path in files:
                    files[path].write(line[match.end() :])
    return list(files)
