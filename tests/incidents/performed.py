"""Perform the reports of a sample on a host with two GPUs.

As root: `python -m tests.incidents.performed SAMPLE FOLDER [WORD…]` runs the preflight's script for each report of the
file SAMPLE whose address has one of the words, with network namespaces as nodes, and writes what each node printed,
with the seconds before each line, to FOLDER/NAME.log. FOLDER has the scripts, preflight.sh and preflight-OPTIONS.sh,
and is not below /tmp.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import yaml

LIMIT_S = 150
PARALLEL = 7

_PREPARE = """
mount --make-rprivate /
hostname node$I
mount -t tmpfs -o size=16g tmpfs /dev/shm
mkdir -p "$WORK/etc$I" "$WORK/tmp$I"
printf '127.0.0.1 localhost\\n10.77.0.1 node0\\n10.77.0.2 node1\\n' > "$WORK/etc$I/hosts"
: > "$WORK/etc$I/resolv.conf"
mount --bind "$WORK/etc$I/hosts" /etc/hosts
mount --bind "$WORK/etc$I/resolv.conf" "$(readlink -f /etc/resolv.conf)"
mount --bind "$WORK/tmp$I" /tmp
ip link set lo up
ip addr add 10.77.0.$((I + 1))/24 dev eth0
ip link set eth0 up
interface() {
  ip link add "$1" type veth peer name "$1-peer"
  echo 1 > "/proc/sys/net/ipv6/conf/$1-peer/disable_ipv6"
  ip link set "$1-peer" up
  ip addr add "$2" dev "$1"
  ip link set "$1" up
}
sleep 1
"""


def report_name(report: dict[str, Any]) -> str:
    """Return a name for files, from a report's address."""
    words = report["source"].removeprefix("https://").removeprefix("github.com/")
    words = words.replace("/issues/", "-").replace("/pull/", "-")
    return re.sub(r"[^A-Za-z0-9]+", "-", words)


def script_name(report: dict[str, Any]) -> str:
    """Return the name of the preflight's script with a report's options."""
    options = re.sub(r"[^a-z0-9]+", "-", report.get("options", "")).strip("-")
    return f"preflight-{options}.sh" if options else "preflight.sh"


class _Log:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._lock = threading.Lock()
        self._start = time.monotonic()

    def copy_from(self, node: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        for line in process.stdout:
            self.write(node, line.rstrip("\n"))

    def write(self, node: str, line: str) -> None:
        with self._lock:
            self._file.write(f"{time.monotonic() - self._start:6.1f} {node}: {line}\n")
            self._file.flush()


def _start(command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def perform(report: dict[str, Any], folder: Path, number: int) -> str:
    """Run the preflight on the nodes of one report, and return a line on how it ended."""
    name = report_name(report)
    nodes = report.get("nodes", 2)
    log = _Log(folder / f"{name}.log")
    namespaces = [f"p{number}-{i}" for i in range(2)]
    for namespace in namespaces:
        subprocess.run(["ip", "netns", "add", namespace], check=True)
    processes: dict[str, subprocess.Popen[str]] = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as work:
        link = f"ip link add eth0 netns {namespaces[0]} type veth peer name eth0 netns {namespaces[1]}"
        subprocess.run(link.split(), check=True)
        for node in range(nodes):
            for task in range(report.get("tasks", 1)):
                env = os.environ | {"I": str(node), "T": str(task), "WORK": work, "FOLDER": str(folder)}
                env |= {"CUDA_VISIBLE_DEVICES": "0,1" if nodes == 1 else str(node)}
                if nodes > 1:
                    env |= {"NNODES": str(nodes), "NODE_RANK": str(node), "MASTER_ADDR": "10.77.0.1"}
                env |= report.get("env", {})
                script = shlex.quote(str(folder / script_name(report)))
                prepare = _PREPARE if task == 0 else "sleep 1"
                # The script is a child, as in a job: what `setup` leaves running would else end with it.
                setup = f"{report.get('setup', '')}\necho '== the script starts'"
                command = f"{prepare}\n{setup}\n{report.get('run', '')} sh {script}\nexit $?"
                label = f"node{node}" if report.get("tasks", 1) == 1 else f"node{node}.{task}"
                if task == 0:
                    start = ["ip", "netns", "exec", namespaces[node], "unshare", "-m", "-u", "sh", "-c", command]
                else:
                    first = processes[f"node{node}.0"].pid
                    start = ["nsenter", "-t", str(first), "-m", "-u", "-n", "sh", "-c", command]
                processes[label] = _start(start, env)
                time.sleep(0.3 if report.get("tasks", 1) > 1 else 0)
        readers = [threading.Thread(target=log.copy_from, args=item, daemon=True) for item in processes.items()]
        for reader in readers:
            reader.start()
        deadline = time.monotonic() + LIMIT_S
        codes = {}
        for label, process in processes.items():
            try:
                codes[label] = str(process.wait(max(0.1, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                codes[label] = "ended by the limit"
            log.write(label, f"== exit: {codes[label]}")
        for process in processes.values():
            # What a setup has left running is in the session of its node.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
        for reader in readers:
            reader.join(5)
    for namespace in namespaces:
        subprocess.run(["ip", "netns", "del", namespace], check=False)
    return f"{name}: {codes}"


def main(sample: Path, folder: Path, words: list[str]) -> None:
    """Perform the reports of a sample with one of the words, those that must be alone first."""
    reports = yaml.safe_load(sample.read_text())
    chosen = [report for report in reports if not words or any(word in report["source"] for word in words)]
    numbered = list(enumerate(chosen))
    for number, report in numbered:
        if report.get("alone"):
            print(perform(report, folder, number), flush=True)
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        together = [(number, report) for number, report in numbered if not report.get("alone")]
        for line in pool.map(lambda item: perform(item[1], folder, item[0]), together):
            print(line, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]).resolve(), sys.argv[3:])
