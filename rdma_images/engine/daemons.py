"""Start, find and end the private engine's processes, which outlive their starter and are recorded for others."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class Process:
    """A process, told apart from later ones of its pid by its start in clock ticks."""

    pid: int
    started: int

    def is_running(self) -> bool:
        """Return whether this very process runs (a zombie does not)."""
        return start_ticks(self.pid) == self.started


def running(layout: Layout) -> dict[str, Process]:
    """Return the daemons that run, by name."""
    processes = {name: recorded(layout.run / f"{name}.json") for name in DAEMONS}
    return {name: record for name, record in processes.items() if record}


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
        daemon = start_process(argv, log, environ, layout.run / f"{name}.json")
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
    processes = sorted(processes_below(layout.root), key=lambda p: p.started, reverse=True)
    for running_process in processes:
        # A shim outlives its killed daemons, and a container its killed shim: the container is the shim's child.
        for child in children(running_process):
            terminate(child, 2.0)
        terminate(running_process, 10.0)
    for mount in _mounts(layout.root):
        _unmount(mount)
    if survivors := [
        *(f"process {running_process.pid}" for running_process in processes_below(layout.root)),
        *_mounts(layout.root),
    ]:
        raise RdmaImagesError(f"the private engine could not be ended, {', '.join(survivors)} stayed\nsee {layout.log}")
    shutil.rmtree(layout.run, ignore_errors=True)
    for folder in HOST_LEFTOVERS:
        with suppress(OSError):  # not there, or another engine's: not empty
            folder.rmdir()
    return bool(daemons or processes)


def wait_until_ready(ready: Callable[[], bool], daemon: Process, name: str, log: Path) -> None:
    """Wait until `ready`. Raises RdmaImagesError with the end of the log."""
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if not daemon.is_running() or time.monotonic() > deadline:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            last_line = lines[-1] if lines else "nothing"
            event = "did not answer" if daemon.is_running() else "ended"
            terminate(daemon, 5.0)
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
    return sorted((path for path in mount_points if Path(path).is_relative_to(root)), key=len, reverse=True)


def start_ticks(pid: int) -> int | None:
    """Return the start of a running `pid` in clock ticks since boot, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc_pid_stat(5): the start is field 22. The name, field 2, is in brackets and may hold brackets and blanks, too.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def start_process(argv: Sequence[str], log: Path, env: Mapping[str, str], record: Path) -> Process:
    """Start `argv` in its own session, logging to `log`; return it, noted in `record`."""
    with log.open("ab") as log_file:
        child = subprocess.Popen(  # it outlives us: nobody waits for it here
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            cwd="/",
            env=dict(env),
            umask=0o022,
            start_new_session=True,
        )
    process = Process(child.pid, start_ticks(child.pid) or 0)
    atomic.write(record, json.dumps(asdict(process)))
    return process


def recorded(record: Path) -> Process | None:
    """Return the process of `record`; None where it does not run any more."""
    try:
        process = Process(**json.loads(record.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return process if process.is_running() else None


def processes_below(folder: Path) -> Iterator[Process]:
    """Yield every process whose program is a file in `folder`, whoever started it."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            program = (entry / "exe").readlink()
            # The path alone may be another's: a process outside of our root (a chroot, a container) shows its own.
            is_below = program.is_relative_to(folder) and program.samefile(entry / "exe")
        except OSError:
            continue
        born = start_ticks(int(entry.name))
        if is_below and born is not None:
            yield Process(int(entry.name), born)


def children(parent: Process) -> list[Process]:
    """Return the processes that `parent` started itself and that still run."""
    processes = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent.pid and fields[0] not in "ZX":
            processes.append(Process(int(entry.name), int(fields[19])))
    return processes


def terminate(process: Process, seconds: float) -> None:
    """Ask `process` to end, and kill it when it has not after `seconds`."""
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        if not process.is_running():
            return
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience
        while process.is_running() and time.monotonic() < deadline:
            time.sleep(0.05)
