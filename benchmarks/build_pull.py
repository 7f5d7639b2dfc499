"""Pulls as Kubernetes nodes make them: containerd 2.2, and SOCI's parallel mode."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

CONTAINERD = """\
version = 3
root = "{folder}/root"
state = "{folder}/run"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
  address = "{folder}/containerd.sock"
[plugins.'io.containerd.transfer.v1.local']
  max_concurrent_unpacks = {unpacks}
"""
# SOCI asks containerd for its content, and containerd asks SOCI for its snapshots.
FOR_SOCI = """\
  [[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
    platform = "linux/amd64"
    snapshotter = "soci"
    differ = "walking"
[proxy_plugins.soci]
  type = "snapshot"
  address = "{folder}/soci.sock"
  [proxy_plugins.soci.exports]
    root = "{folder}/soci"
    enable_remote_snapshot_annotations = "true"
"""
SOCI = """\
no_prometheus = true
skip_check_snapshotter_supported = true
[content_store]
  type = "containerd"
  containerd_address = "{folder}/containerd.sock"
[pull_modes.soci_v1]
  enable = false
[pull_modes.soci_v2]
  enable = false
[pull_modes.parallel_pull_unpack]
  enable = true
  max_concurrent_downloads_per_image = 4
  max_concurrent_unpacks = {unpacks}
  max_concurrent_unpacks_per_image = {unpacks}
[[resolver.host."{host}".mirrors]]
  host = "http://{host}"
  insecure = true
"""


@dataclass(frozen=True)
class PullingNode:
    """How a node pulls: the snapshotter, and how many layers are unpacked at once."""

    name: str
    snapshotter: str
    unpacks: int


NODES = (
    PullingNode("pull, containerd", "overlayfs", 1),
    PullingNode("pull, containerd in parallel", "overlayfs", 4),
    PullingNode("pull, SOCI in parallel", "soci", 4),
)


def nodes(programs: Path | None) -> tuple[PullingNode, ...]:
    """Return what can be measured with the programs in a folder."""
    return tuple(
        node
        for node in NODES
        if programs and (node.snapshotter == "overlayfs" or (programs / "soci-snapshotter-grpc").exists())
    )


def pull(node: PullingNode, programs: Path, folder: Path, ref: str, layers: int) -> float:
    """Return the seconds of a pull into an empty containerd under `folder`.

    Ends the benchmark where not all layers are there afterwards: containerd 2.3 can lose an error of a parallel pull.
    """
    values = {"folder": folder, "unpacks": node.unpacks, "host": ref.partition("/")[0]}
    ctr = [str(programs / "ctr"), "--address", str(folder / "containerd.sock")]
    try:
        with ExitStack() as stack:
            text = CONTAINERD + (FOR_SOCI if node.snapshotter == "soci" else "")
            stack.enter_context(_running([f"{programs}/containerd", "--config"], text.format(**values), folder))
            if node.snapshotter == "soci":
                (folder / "soci").mkdir()
                soci = f"{programs}/soci-snapshotter-grpc --address {folder}/soci.sock --root {folder}/soci --config"
                stack.enter_context(_running(soci.split(), SOCI.format(**values), folder))
            start = time.monotonic()
            _output([*ctr, "images", "pull", "--plain-http", "--snapshotter", node.snapshotter, ref])
            seconds = time.monotonic() - start
            unpacked = len(_output([*ctr, "snapshots", "--snapshotter", node.snapshotter, "list"]).splitlines()) - 1
        if unpacked != layers:
            sys.exit(f"{node.name}: {unpacked} layers of {layers} were unpacked")
        return seconds
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(command: list[str], settings: str, folder: Path) -> Iterator[None]:
    """Run a daemon with these settings while the block runs; it answers at its socket."""
    name = Path(command[0]).name.partition("-")[0]
    folder.mkdir(parents=True, exist_ok=True)
    file, socket = folder / f"{name}.toml", folder / f"{name}.sock"
    file.write_text(settings, encoding="utf-8")
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen([*command, str(file)], stdout=log, stderr=log)
    try:
        while not socket.exists():
            if process.poll() is not None:
                sys.exit(f"{name} ended: {(folder / f'{name}.log').read_text()[-500:]}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def _output(command: list[str]) -> str:
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: {process.stderr.strip()}")
    return process.stdout
