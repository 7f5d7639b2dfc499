"""How soon an empty node runs `import torch`: containerd with stargz-snapshotter, and with a whole pull, in turn.

As root: python benchmarks/lazy_pull.py HOST:PORT/NAME:TAG --namespace NODE --interface DEVICE --programs FOLDER

The node is a network namespace whose interface is the link to measure. A registry that speaks plain HTTP is behind it,
with a zstd image of a torch target. docs/guides/lazy-pulls.md says what FOLDER contains, and how both were made.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

QUIET = 20  # seconds without a byte: the snapshotter waits for 5 s after a read before it fetches in the background
NOISE = 20_000  # bytes
COMMAND = "print('running', flush=True); import torch; print('imported', flush=True)"
CONTAINERD = """version = 3
root = "{folder}/containerd"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
address = "{folder}/containerd.sock"
[proxy_plugins.stargz]
type = "snapshot"
address = "{folder}/stargz.sock"
"""
STARGZ = """[[resolver.host."{host}".mirrors]]
host = "{host}"
insecure = true
"""


@dataclass(frozen=True)
class Node:
    """A network namespace with an empty containerd in `folder`."""

    namespace: str
    interface: str
    programs: Path
    folder: Path

    def command(self, program: str, *arguments: object) -> list[str]:
        """Return the command that runs one of the programs in the namespace."""
        inside = ["nsenter", f"--net=/var/run/netns/{self.namespace}"]
        return [*inside, str(self.programs / program), *map(str, arguments)]

    @contextmanager
    def daemon(self, socket: str, program: str, *arguments: object) -> Iterator[int]:
        """Run a program until the end of the context; yields its process id once it listens on `socket`."""
        environ = os.environ | {"PATH": f"{self.programs}:{os.environ['PATH']}"}
        with (self.folder / f"{program}.log").open("wb") as log:
            command = self.command(program, *arguments)
            running = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
        try:
            while not (self.folder / socket).exists():
                if running.poll() is not None:
                    raise SystemExit((self.folder / f"{program}.log").read_text())
                time.sleep(0.02)
            yield running.pid
        finally:
            running.terminate()
            running.wait()

    def received(self) -> int:
        """Return the bytes that came over the link until now."""
        command = ["ip", "-n", self.namespace, "-s", "-j", "link", "show", self.interface]
        shown = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return int(shown[0]["stats64"]["rx"]["bytes"])


def processor_seconds(processes: list[int]) -> float:
    """Return the user and system time of some processes."""
    fields = [Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split() for process in processes]
    return sum(int(row[11]) + int(row[12]) for row in fields) / os.sysconf("SC_CLK_TCK")


def measure(node: Node, image: str, lazy: bool) -> dict[str, object]:
    """Pull and run once; return for each event the seconds, bytes and daemons' processor seconds since the pull."""
    host = image.partition("/")[0]
    (node.folder / "containerd.toml").write_text(CONTAINERD.format(folder=node.folder))
    (node.folder / "stargz.toml").write_text(STARGZ.format(host=host))
    client, snapshotter = ("ctr-remote", "stargz") if lazy else ("ctr", "overlayfs")
    pull = ["rpull"] if lazy else ["pull", "--snapshotter", snapshotter]
    ctr = node.command(client, "--address", node.folder / "containerd.sock")
    with ExitStack() as stack:
        processes = []
        if lazy:
            paths = [node.folder / name for name in ("stargz.toml", "stargz", "stargz.sock")]
            processes.append(stack.enter_context(node.daemon("stargz.sock", "stargz-grpc", *paths)))
        config = ("--config", node.folder / "containerd.toml")
        processes.append(stack.enter_context(node.daemon("containerd.sock", "containerd", *config)))
        subprocess.run([*ctr, "version"], check=True, capture_output=True)
        begin, base, row = time.monotonic(), node.received(), dict[str, object]()

        def note(event: str) -> None:
            seconds = round(time.monotonic() - begin, 2)
            row[event] = (seconds, node.received() - base, round(processor_seconds(processes), 1))

        subprocess.run([*ctr, "images", *pull, "--plain-http", image], check=True, capture_output=True)
        note("pulled")
        program = ["/opt/venv/bin/python", "-c", COMMAND]
        run = [*ctr, "run", "--rm", f"--snapshotter={snapshotter}", image, "measured", *program]
        with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout
            for line in running.stdout:
                note(line.strip())
        if lazy:
            wait_until_quiet(node, lambda: note("everything"))
        subprocess.run([*ctr, "images", "rm", "--sync", image], check=True, capture_output=True)
    return row


def wait_until_quiet(node: Node, note: Callable[[], None]) -> None:
    """Call `note` whenever bytes have come, until none came for QUIET seconds."""
    last, since = 0, time.monotonic()
    while time.monotonic() - since < QUIET:
        if (now := node.received()) > last + NOISE:
            last, since = now, time.monotonic()
            note()
        time.sleep(0.25)


def main() -> None:
    """Measure both ways in turn, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--interface", required=True)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    for _ in range(options.rounds):
        for lazy in (True, False):
            folder = Path(tempfile.mkdtemp(prefix="lazy-pull-"))
            node = Node(options.namespace, options.interface, options.programs.resolve(), folder)
            try:
                before = os.getloadavg()[0]
                row = measure(node, options.image, lazy)
                loads = [round(before, 1), round(os.getloadavg()[0], 1)]
                print(json.dumps({"way": "lazy" if lazy else "whole", "load": loads, **row}), flush=True)
            finally:
                for line in Path("/proc/mounts").read_text().splitlines()[::-1]:
                    if line.split()[1].startswith(f"{folder}/"):
                        subprocess.run(["umount", "--lazy", line.split()[1]], check=True)
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
