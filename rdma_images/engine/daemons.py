"""Start, find and end the private engine's processes, which outlive their starter.

A recorded pid counts only while it runs a program of the engine's folder, because pids are used again.
"""

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rdma_images.core import atomic
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import state_folder
from rdma_images.engine import daemon_api
from rdma_images.engine.layout import Layout

DAEMONS = {"containerd": ("--config", "containerd.toml"), "dockerd": ("--config-file", "daemon.json")}  # in this order
START_SECONDS = 60.0  # a cold start takes 0.3 s on an idle machine; a busy disk may take its time
STOP_SECONDS = 30.0  # dockerd gives containers 15 s to end

# The only variables that the daemons inherit: others may name folders that they outlive, or hold secrets.
INHERITED = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")

MNT_DETACH = 2  # sys/mount.h

# Folders outside the state folder that the daemons make and leave empty.
HOST_LEFTOVERS = tuple(map(Path, ("/run/containerd/s", "/run/containerd", "/run/docker/plugins", "/run/docker")))


def running(layout: Layout) -> dict[str, int]:
    """Return the pids of the daemons that run, by name."""
    pids = {}
    for name in DAEMONS:
        with suppress(OSError, ValueError):  # no record, or half of one
            pid = int((layout.run / f"{name}.started").read_text())
            if _has_program_below(layout.root, pid):
                pids[name] = pid
    return pids


def start(layout: Layout, path: str) -> None:
    """Start containerd, then dockerd, with `path` as PATH, and wait until both answer.

    Raises RdmaImagesError with the end of its log where one does not.
    """
    layout.temporary.mkdir(exist_ok=True)
    environ = {name: value for name, value in os.environ.items() if name.upper() in INHERITED}
    # A build moves gigabytes through both daemons; with Go's default, collecting garbage took 4 % of a torch image's.
    environ |= {"PATH": path, "TMPDIR": str(layout.temporary), "GOGC": "400"}
    ready: dict[str, Callable[[], bool]] = {
        "containerd": layout.containerd_socket.exists,
        "dockerd": lambda: is_answering(layout),
    }
    for name, (flag, configuration) in DAEMONS.items():
        log = layout.log / f"{name}.log"
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        argv = [str(layout.program(name)), flag, str(layout.root / configuration)]
        daemon = start_process(argv, log, environ)
        atomic.write(layout.run / f"{name}.started", str(daemon.pid))
        wait_until_ready(ready[name], daemon, name, log)


def is_answering(layout: Layout) -> bool:
    """Return whether dockerd answers and reports a living containerd."""
    try:
        version = daemon_api.request(layout.socket, "/version")
    except OSError:
        return False
    return any(part["Name"] == "containerd" for part in version.get("Components", ()))


def stop(layout: Layout) -> bool:
    """End all processes of this engine and unmount its mounts; return whether any ran.

    Raises RdmaImagesError where something stays.
    """
    daemons = running(layout)
    for name in reversed(DAEMONS):  # dockerd ends its containers and builds itself
        if name in daemons:
            terminate(daemons[name], STOP_SECONDS)
    processes = processes_below(layout.root)
    for pid in processes:
        # A shim outlives its killed daemons, and a container its killed shim: the container is the shim's child.
        for child in children(pid):
            terminate(child, 2.0)
        terminate(pid, 10.0)
    for mount in _mounts(layout.root):
        _unmount(mount)
    if survivors := [*(f"process {pid}" for pid in processes_below(layout.root)), *_mounts(layout.root)]:
        raise RdmaImagesError(f"the private engine could not be ended, {', '.join(survivors)} stayed\nsee {layout.log}")
    shutil.rmtree(layout.run, ignore_errors=True)
    for folder in HOST_LEFTOVERS:
        with suppress(OSError):  # not there, or another engine's: not empty
            folder.rmdir()
    return bool(daemons or processes)


def wait_until_ready(ready: Callable[[], bool], daemon: subprocess.Popen[bytes], name: str, log: Path) -> None:
    """Wait until `ready`. Raises RdmaImagesError with the end of the log."""
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        has_ended = daemon.poll() is not None
        if has_ended or time.monotonic() > deadline:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            last_line = lines[-1] if lines else "nothing"
            event = "ended" if has_ended else "did not answer"
            terminate(daemon.pid, 5.0)
            fix = f"see {log}"
            if "no space left on device" in last_line:
                fix = (
                    f"free disk space there, as with `rm -r {state_folder() / 'layers'}`, made again when needed; {fix}"
                )
            raise RdmaImagesError(f"the private engine's {name} {event}, and last wrote: {last_line}\n{fix}")
        time.sleep(0.05)


def _unmount(path: str) -> None:
    """Unmount `path` lazily, by libc: a small host has no umount(8)."""
    import ctypes  # here, because few commands unmount anything

    ctypes.CDLL(None).umount2(os.fsencode(path), MNT_DETACH)


def _mounts(root: Path) -> list[str]:
    """Return where something is mounted under `root`, the innermost first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    # Field 5 is the place, with blanks written as \040: proc_pid_mountinfo(5).
    mount_points = [line.split()[4].replace(r"\040", " ") for line in lines]
    return sorted((path for path in mount_points if Path(path).is_relative_to(root.resolve())), key=len, reverse=True)


def start_process(argv: Sequence[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start `argv` in its own session, logging to `log`, and return it."""
    with log.open("ab") as log_file:
        return subprocess.Popen(  # it outlives us: nobody waits for it here
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            cwd="/",
            env=dict(env),
            umask=0o022,
            start_new_session=True,
        )


def processes_below(folder: Path) -> list[int]:
    """Return the pid of every process whose program is a file in `folder`, whoever started it."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _has_program_below(folder, pid)]


def _has_program_below(folder: Path, pid: int) -> bool:
    """Return whether a process runs a file in `folder`; one that has ended runs none."""
    program = Path(f"/proc/{pid}/exe")
    try:
        path = program.readlink()
        # The path alone may be another's: a process outside of our root (a chroot, a container) shows its own.
        return path.is_relative_to(folder.resolve()) and path.samefile(program)
    except OSError:
        return False


def children(parent: int) -> list[int]:
    """Return the pids of the processes that `parent` started itself."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            # proc_pid_stat(5): the name, field 2, is in brackets and may hold brackets and blanks, too.
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                pids.append(int(stat.parent.name))
    return pids


def terminate(pid: int, seconds: float) -> None:
    """Ask a process to end, and kill it when it has not after `seconds`."""
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
                signal.pidfd_send_signal(process, number)
                if select.select([process], [], [], patience)[0]:
                    return
        finally:
            os.close(process)
