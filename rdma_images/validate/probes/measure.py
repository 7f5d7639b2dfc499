"""Runs the probes, each in a process of its own with a time limit, and prints what they returned as one JSON line."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Mapping

from rdma_images.validate.probes import (
    contents,
    devices,
    gpus,
    libraries,
    network,
    own_time,
    packages,
    pytorch,
    rootfs,
    settings,
    system,
    tools,
    tree,
)

MARK = "rdma-images-measured:"
PROBE_SECONDS = 90  # seconds of its own time for one probe, see own_time
GPU_PROBE_SECONDS = 400  # seconds where an all-reduce is among them


def file_tree(volumes: Iterable[str] = ()) -> dict[str, Any]:
    """Return the file tree with the folders `volumes`, and what its libraries are."""
    root = rootfs.Root()
    summary = tree.summary(root.entries(volumes))
    files = summary["library_files"]
    loaders, folders = libraries.ImageLoader(files), packages.python_folders(root)
    facts = libraries.fabric_libraries(root, files, os.environ, loaders, folders)
    return {"files": summary, "libraries": facts}


def settings_of_system(entry: Sequence[str] = ()) -> dict[str, Any]:
    """Return the settings of the system that this runs in, see settings.measure_settings."""
    return settings.measure_settings(rootfs.Root(), dict(os.environ), entry, libraries.ImageLoader({}))


PROBE_FUNCTIONS: dict[str, Callable[[], Any]] = {
    "torch": pytorch.imported_torch,
    "tree": file_tree,
    "packages": packages.packages_of_system,
    "contents": contents.contents_of_system,
    "tools": tools.tool_runs,
    "system": system.running_system,
    "settings": settings_of_system,
    "devices": devices.measure_devices,
    "gpus": gpus.measure_gpus,
    "network": functools.partial(network.measure_network, {}),
}


def run_probes(
    names: list[str],
    limit: float = PROBE_SECONDS,
    volumes: Iterable[str] = (),
    entry: Sequence[str] = (),
    request: Mapping[str, Any] | None = None,
    beat: Callable[[], Any] = lambda: None,
) -> dict[str, Any]:
    """Run the probes `names`, all at once, and return {probe: {"value", "error", "stopped", "seconds"}}.

    A probe is stopped after `limit` seconds of its own time. `beat` is called about once a second.
    `volumes`: see file_tree; `entry`: see settings.measure_settings; `request`: see network.measure_network.
    """
    probes: dict[str, Callable[[], Any]] = {
        **PROBE_FUNCTIONS,
        "tree": functools.partial(file_tree, volumes),
        "settings": functools.partial(settings_of_system, entry),
        "network": functools.partial(network.measure_network, request or {}),
    }
    start = time.monotonic()
    children, own_times = {}, {}
    for name in names:
        reader, pid = _start_probe(probes[name])
        children[reader], own_times[reader] = (name, pid), own_time.OwnTime(pid)
    answers = dict.fromkeys(names, b"")
    seconds = dict.fromkeys(names, 0.0)
    open_ends, late = set(children), set()
    while open_ends:
        beat()
        for reader in select.select(list(open_ends), [], [], min(1.0, limit))[0]:
            chunk = os.read(reader, 1 << 16)
            name = children[reader][0]
            answers[name] += chunk
            seconds[name] = round(time.monotonic() - start, 3)
            if not chunk:
                open_ends.discard(reader)
        late |= {reader for reader in open_ends if own_times[reader].is_over(limit)}
        open_ends -= late
    return {
        name: _answer(answers[name], pid, reader in late, limit, seconds[name])
        for reader, (name, pid) in children.items()
    }


def _start_probe(probe: Callable[[], Any]) -> tuple[int, int]:
    """Start a process that runs a probe; return where its answer is read, and its id."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(probe, writer)
    os.close(writer)
    return reader, pid


def as_json(answers: Any) -> bytes:
    """Return what was found as JSON.

    Bytes of a file's name that are no UTF-8 become "?"; no other program takes them.
    """
    return json.dumps(answers, ensure_ascii=False).encode("utf-8", "replace")


def _child(probe: Callable[[], Any], writer: int) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    try:
        answer: dict[str, Any] = {"value": probe(), "error": ""}
    except BaseException as error:  # whatever an image does to a probe is an answer, not a crash
        last = traceback.extract_tb(error.__traceback__)[-1:]
        where = " (%s:%s)" % (os.path.basename(last[0].filename), last[0].lineno) if last else ""
        answer = {"value": None, "error": "%s: %s%s" % (type(error).__name__, str(error)[:1500], where)}
    with os.fdopen(writer, "wb") as out:
        out.write(as_json(answer))
    os._exit(0)


def _answer(data: bytes, pid: int, late: bool, limit: float, seconds: float) -> dict[str, Any]:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if late:
        return {"value": None, "error": "stopped after %g s" % limit, "stopped": True, "seconds": limit}
    try:
        answer: dict[str, Any] = json.loads(data.decode())
    except ValueError:
        answer = {"value": None, "error": "the process ended without an answer (status %d)" % status}
    answer["seconds"] = seconds
    return answer


def _beat() -> None:
    """Show whoever waits for the answers that this goes on."""
    sys.stdout.write(".")
    sys.stdout.flush()


def main() -> None:
    """Measure what the command line asks for, the arguments of `run_probes` as JSON, and print MARK and the answers."""
    answers = run_probes(**json.loads(sys.argv[1]), beat=_beat)
    sys.stdout.write(MARK + json.dumps(answers) + "\n")
