"""The fabric's own tools, run with a limit of time and of output."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from typing import IO, Any, cast

from rdma_images.validate.probes import own_time

TOOL_SECONDS = 15
MAX_OUTPUT_BYTES = 20000  # bytes of output, and of errors
PROGRAM_FOLDERS = "/opt/amazon/efa/bin:/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
COMMANDS = {
    "fi_info --version": ["fi_info", "--version"],
    "fi_info -l": ["fi_info", "-l"],
    "fi_info -p efa": ["fi_info", "-p", "efa", "-t", "FI_EP_RDM"],
    "ibv_devinfo": ["ibv_devinfo"],
}
TRAIN = "train --help"
TRAIN_FOLDER = "/opt/sagemaker/"


def tool_runs() -> dict[str, dict[str, Any]]:
    """Run each command of COMMANDS, and TRAIN.

    Returns where its program is, its exit code (None: none), output and seconds.
    """
    return {**{name: run(command) for name, command in COMMANDS.items()}, TRAIN: train()}


def train() -> dict[str, Any]:
    """Return what SageMaker's command `train` says of itself.

    Only ours is started: another one may begin to train.
    """
    path = tool_path("train")
    if path and not os.path.realpath(path).startswith(TRAIN_FOLDER):
        return {**not_run(path), "stderr": "not started: it is not in %s" % TRAIN_FOLDER}
    return run(["train", "--help"])


def tool_path(tool: str) -> str:
    """Return where the tool is: on the PATH, else in a usual place; "" where it is not."""
    return shutil.which(tool) or shutil.which(tool, path=PROGRAM_FOLDERS) or ""


def not_run(path: str) -> dict[str, Any]:
    """Return the result of a tool that was not run: its path alone."""
    return {"path": path, "exit_code": None, "stdout": "", "stderr": "", "timed_out": False, "seconds": 0.0}


def signal_name(number: int) -> str:
    """Return the name of a signal; "signal 35" for one that has none, as those of real time."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def run(command: list[str]) -> dict[str, Any]:
    """Run one command.

    `path` is "" where there is no such tool; `timed_out` where it had to be stopped.
    """
    path = tool_path(command[0])
    answer = not_run(path)
    if not path:
        return answer
    start = time.monotonic()
    try:
        rc, out, err = run_bounded([path, *command[1:]], TOOL_SECONDS, MAX_OUTPUT_BYTES)
    except OSError as error:
        answer["stderr"] = str(error)
        return answer
    answer["seconds"] = round(time.monotonic() - start, 3)
    if rc is None:
        answer["timed_out"] = True
    else:
        answer.update(exit_code=rc, stdout=out.decode("utf-8", "replace"), stderr=err.decode("utf-8", "replace"))
    return answer


def run_bounded(
    command: list[str], limit: float, limit_bytes: int, environment: dict[str, str] | None = None
) -> tuple[int | None, bytes, bytes]:
    """Return exit code (None: stopped after `limit` seconds of its own time), output and errors.

    Output and errors have at most `limit_bytes` each; the rest is read and dropped. Raises OSError where the
    command cannot be started.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True, env=environment
    )
    clock = own_time.OwnTime(process.pid)
    out, err, late = read_until_end(process, limit_bytes, lambda _: clock.is_over(limit))
    return None if late else process.returncode, out, err


def read_until_end(
    process: subprocess.Popen[bytes], limit_bytes: int, is_over: Callable[[int], bool]
) -> tuple[bytes, bytes, bool]:
    """Return output and errors of a process in a session of its own, and whether it was ended with its children.

    It is as soon as `is_over` says so of how many bytes it has printed. At most `limit_bytes` of each are kept.
    """
    output, printed = {"stdout": bytearray(), "stderr": bytearray()}, 0
    with process, selectors.DefaultSelector() as selector:
        for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
            selector.register(cast("IO[bytes]", stream), selectors.EVENT_READ, name)
        while selector.get_map() and not is_over(printed):
            for key, _ in selector.select(0.1):
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fileobj)
                printed += len(chunk)
                output[key.data] += chunk[: limit_bytes - len(output[key.data])]
        late = bool(selector.get_map())
        while not late and process.poll() is None:
            late = is_over(printed)
            time.sleep(0.01)
        if late:
            os.killpg(process.pid, signal.SIGKILL)  # its children hold the pipes too
    return bytes(output["stdout"]), bytes(output["stderr"]), late
