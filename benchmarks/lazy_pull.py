"""Time `import torch` on an empty node: with stargz-snapshotter, SOCI, a whole pull.

As root: python benchmarks/lazy_pull.py HOST:PORT/NAME:TAG --namespaces NODE --interface DEVICE --programs FOLDER

A node is a network namespace whose interface is its link to a registry that speaks plain HTTP. It pulls and runs the
images, zstd images of torch targets, one after another; several nodes do so at once. With `--soci` it pulls those,
gzip images that soci converted, with SOCI's snapshotter.

FOLDER has `containerd`, `containerd-shim-runc-v2`, `ctr` and `runc` of Debian's packages containerd and runc,
`ctr-remote` of stargz-snapshotter, for `--soci` also `soci-snapshotter-grpc`, and `stargz-grpc`: a `main` compiled from
golang-github-containerd-stargz-snapshotter-dev, whose arguments are a configuration, a folder and a socket, and which
serves `service.NewStargzSnapshotterService` over gRPC there. A pair of veth devices joins the node's namespace and the
registry's, with `tc qdisc add dev r0 root tbf rate 1gbit burst 256000 latency 20ms`.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
platform = "linux/amd64"
snapshotter = "{snapshotter}"
differ = "walking"
[proxy_plugins.stargz]
type = "snapshot"
address = "{folder}/stargz.sock"
[proxy_plugins.soci]
type = "snapshot"
address = "{folder}/soci.sock"
[proxy_plugins.soci.exports]
enable_remote_snapshot_annotations = "true"
"""
STARGZ = """[[resolver.host."{host}".mirrors]]
host = "{host}"
insecure = true
"""
SOCI = """no_prometheus = true
skip_check_snapshotter_supported = true
[content_store]
containerd_address = "{folder}/containerd.sock"
[[resolver.host."{host}".mirrors]]
host = "http://{host}"
insecure = true
"""
SNAPSHOTTERS = {"lazy": "stargz", "soci": "soci", "whole": "overlayfs"}


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
        """Run a program for the block, and yield its process id once `socket` exists."""
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


def pull_all(node: Node, images: Sequence[str], way: str, reads_rest: bool) -> None:
    """Pull and run the images on an empty node, printing rows; may wait for all bytes."""
    host, folder = images[0].partition("/")[0], node.folder
    (folder / "containerd.toml").write_text(CONTAINERD.format(folder=folder, snapshotter=SNAPSHOTTERS[way]))
    (folder / "stargz.toml").write_text(STARGZ.format(host=host))
    (folder / "soci.toml").write_text(SOCI.format(host=host, folder=folder))
    ctr = node.command("ctr-remote" if way == "lazy" else "ctr", "--address", folder / "containerd.sock")
    with ExitStack() as stack:
        processes = []
        if way == "lazy":
            paths = [folder / name for name in ("stargz.toml", "stargz", "stargz.sock")]
            processes.append(stack.enter_context(node.daemon("stargz.sock", "stargz-grpc", *paths)))
        if way == "soci":
            (folder / "soci").mkdir()  # its daemon does not make it
            options = ("--config", folder / "soci.toml", "--root", folder / "soci", "--address", folder / "soci.sock")
            processes.append(stack.enter_context(node.daemon("soci.sock", "soci-snapshotter-grpc", *options)))
        config = ("--config", folder / "containerd.toml")
        processes.append(stack.enter_context(node.daemon("containerd.sock", "containerd", *config)))
        subprocess.run([*ctr, "version"], check=True, capture_output=True)
        for image in images:
            row = {"way": way, "node": node.namespace, "image": image, "load": round(os.getloadavg()[0], 1)}
            print(json.dumps(row | pull_and_run(node, ctr, image, processes, way, reads_rest)), flush=True)


def pull_and_run(
    node: Node, ctr: Sequence[str], image: str, processes: list[int], way: str, reads_rest: bool
) -> dict[str, object]:
    """Return seconds, bytes and daemons' processor seconds at each event of a pull."""
    snapshotter = f"--snapshotter={SNAPSHOTTERS[way]}"
    pull = ["rpull"] if way == "lazy" else ["pull", snapshotter]
    begin, base, row = time.monotonic(), node.received(), dict[str, object]()
    processor = processor_seconds(processes)

    def note(event: str) -> None:
        seconds = round(time.monotonic() - begin, 2)
        row[event] = (seconds, node.received() - base, round(processor_seconds(processes) - processor, 1))

    subprocess.run([*ctr, "images", *pull, "--plain-http", image], check=True, capture_output=True)
    note("pulled")
    container = f"{node.namespace}-{os.getpid()}-{int(begin)}"  # runc has one list for all nodes
    run = [*ctr, "run", "--rm", snapshotter, image, container, "/opt/venv/bin/python", "-c", COMMAND]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        for line in running.stdout:
            note(line.strip())
    if reads_rest and way != "whole":
        wait_until_quiet(node, lambda: note("everything"))
    return row


def wait_until_quiet(node: Node, note: Callable[[], None]) -> None:
    """Call `note` whenever bytes have come, until none came for QUIET seconds."""
    last, since = 0, time.monotonic()
    while time.monotonic() - since < QUIET:
        if (now := node.received()) > last + NOISE:
            last, since = now, time.monotonic()
            note()
        time.sleep(0.25)


@contextmanager
def empty_node(options: argparse.Namespace, namespace: str) -> Iterator[Node]:
    """Provide a node with an empty folder, and remove what it mounted and wrote."""
    folder = Path(tempfile.mkdtemp(prefix="lazy-pull-"))
    try:
        yield Node(namespace, options.interface, options.programs.resolve(), folder)
    finally:
        for line in Path("/proc/mounts").read_text().splitlines()[::-1]:
            if line.split()[1].startswith(f"{folder}/"):
                subprocess.run(["umount", "--lazy", line.split()[1]], check=True)
        shutil.rmtree(folder)


def main() -> None:
    """Measure the ways in turn, and print a line of JSON for each image on each node."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="+")
    parser.add_argument("--namespaces", nargs="+", required=True)
    parser.add_argument("--interface", required=True)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ways", nargs="+", choices=SNAPSHOTTERS, default=["lazy", "whole"])
    parser.add_argument("--soci", nargs="+", default=[], help="the images of the way soci")
    parser.add_argument("--no-rest", action="store_true", help="do not wait for what a lazy pull brings later")
    options = parser.parse_args()
    for way in options.ways * options.rounds:
        with ExitStack() as stack, ThreadPoolExecutor(len(options.namespaces)) as pool:
            nodes = [stack.enter_context(empty_node(options, name)) for name in options.namespaces]
            reads_rest = not options.no_rest
            images = options.soci if way == "soci" else options.images
            for run in [pool.submit(pull_all, node, images, way, reads_rest) for node in nodes]:
                run.result()


if __name__ == "__main__":
    main()
