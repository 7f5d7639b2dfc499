"""The private engine: Docker from Debian's packages, in the user's state folder, on a socket of its own."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from rdma_images.engine import ask, debian, hostapt, process, turn
from rdma_images.engine.layout import DOCKER_PACKAGES, DOCKER_SUITE, HOST_PACKAGES, Layout, layout, write_configuration
from rdma_images.engine.model import Engine, Progress, silent
from rdma_images.errors import RdmaImagesError

START_SECONDS = 60.0  # a cold start takes 2 s here; a busy disk may take its time
STOP_SECONDS = 30.0  # dockerd gives containers 15 s to end
LIBC = (2, 34)  # what Debian 13's Docker needs, by its packages' Depends


def obstacle() -> str | None:
    """Why a private engine cannot run on this host; None when it can."""
    if os.geteuid() != 0:
        return "a private engine needs root"
    try:
        hostapt.debian()
    except RdmaImagesError as error:
        return str(error)
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    version = libc.rpartition(" ")[2].split(".")
    if not libc.startswith("glibc") or tuple(map(int, version[:2])) < LIBC:
        return f"a private engine needs glibc {'.'.join(map(str, LIBC))} or later (Debian 12), this host has {libc}"
    return None


def running() -> Engine | None:
    """The private engine, where it runs and answers: a few milliseconds."""
    place = layout()
    if any(process.recorded(place.run / f"{name}.json") is None for name in ("containerd", "dockerd")):
        return None
    if not ask.answers(place.socket):
        return None
    try:
        learnt = json.loads(place.card.read_text(encoding="utf-8"))
        return Engine(**{**learnt, "env": _env(place)})
    except (FileNotFoundError, ValueError, TypeError):
        return None


def up(progress: Progress = silent) -> Engine:
    """The private engine, started where it does not run. Raises RdmaImagesError where that cannot be."""
    if engine := running():
        return engine
    if why := obstacle():
        raise RdmaImagesError(f"{why}: start Docker 24 or later with buildx, or set DOCKER_HOST")
    with turn.take("engine", "starting the private engine", progress):
        if engine := running():
            return engine
        place = layout()
        _unpack(place, progress)
        progress("starting the private engine")
        end_processes(place)
        write_configuration(place)
        _start_daemons(place)
        engine = _describe(place)
        place.card.write_text(json.dumps(asdict(engine), indent=1), encoding="utf-8")
        return engine


def down(purge: bool = False, progress: Progress = silent) -> bool:
    """End the private engine: no process, no mount, no socket stays. With `purge` its packages, images and cache go, too.

    Answers whether there was anything to end or remove.
    """
    place = layout()
    if not place.root.exists():
        return False
    with turn.take("engine", "ending the private engine", progress):
        ran = end_processes(place)
        shutil.rmtree(place.run, ignore_errors=True)
        if purge:
            progress(f"removing {place.root}")
            shutil.rmtree(place.root)
    return ran or purge


def end_processes(place: Layout) -> bool:
    """End all that runs from this engine's programs, containers first, and unmount what it mounted."""
    dockerd = process.recorded(place.run / "dockerd.json")
    if dockerd:
        process.end(dockerd, STOP_SECONDS)
    found = sorted(process.under(place.root), key=lambda p: p.started, reverse=True)
    for one in found:
        # A shim outlives its killed daemons, and a container its killed shim: the container is the shim's child.
        for child in process.children(one):
            process.end(child, 2.0)
        process.end(one, 10.0)
    _unmount(place.root)
    return bool(dockerd or found)


def _unmount(root: Path) -> None:
    """Unmount all under `root`, the innermost first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    # Field 5 is the place, with blanks written as \040: proc_pid_mountinfo(5).
    places = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    for place in sorted((p for p in places if Path(p).is_relative_to(root)), key=len, reverse=True):
        subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)


def _unpack(place: Layout, progress: Progress) -> None:
    """The engine's packages, fetched where they are not there or no longer whole."""
    for folder, packages, suite, programs in (
        (place.docker_packages, DOCKER_PACKAGES, DOCKER_SUITE, ("usr/sbin/dockerd", "usr/bin/containerd", "usr/bin/docker")),
        (place.host_packages, HOST_PACKAGES, hostapt.debian().codename, ("usr/sbin/runc", "usr/bin/tini-static")),
    ):
        if any(not (folder / program).exists() for program in programs):
            shutil.rmtree(folder, ignore_errors=True)
        debian.fetch(packages, suite, folder, progress)


def _start_daemons(place: Layout) -> None:
    """containerd, then dockerd on it; each answers before this returns."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("DOCKER_", "CONTAINERD_", "NOTIFY_"))}
    environ["PATH"] = _env(place)["PATH"]
    for name, config in (("containerd", "containerd.toml"), ("dockerd", "daemon.json")):
        flag = "--config" if name == "containerd" else "--config-file"
        argv = [str(place.program(name)), flag, str(place.root / config)]
        log = place.log / f"{name}.log"
        log.unlink(missing_ok=True)
        (place.run / "dockerd.pid").unlink(missing_ok=True)
        started = process.start(argv, log, environ, place.run / f"{name}.json")
        up = place.containerd_socket.exists if name == "containerd" else lambda: ask.answers(place.socket)
        _wait(up, started, name, log)


def _wait(up: Callable[[], bool], started: process.Process, name: str, log: Path) -> None:
    """Return when `up`; RdmaImagesError with the end of the log when the process died or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not up():
        if not started.alive() or time.monotonic() > deadline:
            last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-3:]
            what = "did not answer" if started.alive() else "ended"
            process.end(started, 5.0)
            raise RdmaImagesError(f"the private engine's {name} {what}; the end of {log} says: {' | '.join(last)}")
        time.sleep(0.05)


def _describe(place: Layout) -> Engine:
    """The engine that runs, with its versions measured."""
    env = _env(place)
    said = subprocess.run(["docker", "buildx", "version"], env={**os.environ, **env}, capture_output=True, text=True)
    if said.returncode:
        raise RdmaImagesError(f"the private engine's buildx does not run: {said.stderr.strip()}")
    info = ask.get(place.socket, "/info", 10.0)
    containerd = any("containerd" in value for pair in info["DriverStatus"] or [] for value in pair)
    return Engine(
        name="private",
        kind="private",
        host=place.host,
        version=info["ServerVersion"],
        buildx=said.stdout.split()[1],
        store="containerd" if containerd else "classic",
        build_network="host",
        env=env,
    )


def _env(place: Layout) -> dict[str, str]:
    """What a docker client of this engine needs beside this process's environment."""
    ours = [str(folder) for folder in place.path]
    others = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder not in ours]
    path = os.pathsep.join([*ours, *others])
    return {"PATH": path, "DOCKER_HOST": place.host, "DOCKER_CONFIG": str(place.docker_config)}
