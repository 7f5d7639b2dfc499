"""The fabric's own tools, run with a time limit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from typing import Any

LIMIT = 15  # seconds
KEPT = 20000  # characters of output
PLACES = "/opt/amazon/efa/bin:/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
COMMANDS = {
    "fi_info --version": ["fi_info", "--version"],
    "fi_info -l": ["fi_info", "-l"],
    "fi_info -p efa": ["fi_info", "-p", "efa", "-t", "FI_EP_RDM"],
    "ibv_devinfo": ["ibv_devinfo"],
    "nvcc --version": ["nvcc", "--version"],
}


def tool_runs() -> dict[str, dict[str, Any]]:
    """Each command of COMMANDS: where the tool was found, its exit code (None: none), output and seconds."""
    return {name: run(command) for name, command in COMMANDS.items()}


def found(tool: str) -> str:
    """Where the tool is: on the PATH, else in a usual place; "" where it is not."""
    return shutil.which(tool) or shutil.which(tool, path=PLACES) or ""


def run(command: list[str]) -> dict[str, Any]:
    """One command. `path` is "" where there is no such tool; `timed_out` where it had to be stopped."""
    path = found(command[0])
    answer: dict[str, Any] = {"path": path, "rc": None, "out": "", "err": "", "timed_out": False, "seconds": 0.0}
    if not path:
        return answer
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        answer["err"] = str(error)
        return answer
    try:
        out, err = process.communicate(timeout=LIMIT)
        answer.update(rc=process.returncode, out=_text(out), err=_text(err))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its children hold the pipes too
        process.communicate()
        answer["timed_out"] = True
    answer["seconds"] = round(time.monotonic() - start, 3)
    return answer


def _text(data: bytes) -> str:
    return data[:KEPT].decode("utf-8", "replace")
