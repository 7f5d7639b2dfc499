"""Converted images in a registry, and a node whose snapshotter reads them in part.

A node is a containerd of its own, and needs root.
"""

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.core import paths
from rdma_images.engine.docker_command import Engine
from rdma_images.plan import matrix
from rdma_images.publish import publish_images
from rdma_images.publish.keys import Signer
from rdma_images.publish.publisher import Publisher
from rdma_images.publish.push import PushPolicy
from rdma_images.publish.push_display import LineProgress
from tests.e2e.publish_parts import (
    PASSWORD,
    SUITE,
    USER,
    Registry,
    Small,
    build_small,
    green,
    planned,
    registry_program,
    write_steps,
)

CONTAINERD = """\
version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
address = "{folder}/containerd.sock"
[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
platform = "linux/amd64"
snapshotter = "{name}"
differ = "walking"
[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
platform = "linux/amd64"
snapshotter = "overlayfs"
differ = "walking"
[proxy_plugins.{name}]
type = "snapshot"
address = "{folder}/{program}.sock"
[proxy_plugins.{name}.exports]
enable_remote_snapshot_annotations = "true"
"""
HOST = """\
[[resolver.host."{host}".mirrors]]
host = "{address}"
insecure = true
"""


@contextmanager
def registry_with_login(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Provide a registry whose login, like cosign's password, is in the environment."""
    monkeypatch.setenv("TEST_REGISTRY_USER", USER)
    monkeypatch.setenv("TEST_REGISTRY_PASSWORD", PASSWORD)
    monkeypatch.setenv("COSIGN_PASSWORD", "pass phrase")
    monkeypatch.setattr(paths, "IMAGES", folder / "images")
    server = Registry(registry_program(), folder / "registry").start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def built(engine: Engine, folder: Path, compression: str) -> Iterator[Small]:
    """Provide an image of two layers of 12 MiB."""
    output = f"oci-mediatypes=true,compression={compression},force-compression=true"
    small = build_small(engine, folder / "context", folder.name.lower(), layers=2, size=12 << 20, output=output)
    try:
        yield small
    finally:
        client = engines.client(engine)
        client.images.remove(small.ref, force=True)
        client.close()


def publish(engine: Engine, registry: Registry, small: Small, key: Path | None = None) -> publish_images.PublishResult:
    """Publish an image, and once more as it is converted."""
    image = planned()
    write_steps(image, *green(image, small))
    publisher = Publisher(
        engine=lambda: engine,
        display=LineProgress(print),
        signer=Signer(str(key)) if key else None,
        push_policy=PushPolicy(3, 0.1, 60),
        to_stargz=True,
    )
    items = publish_images.approved_images([image], [image], matrix.load(), SUITE)
    (result,) = publish_images.publish(items, {"local": registry.entry()}, publisher)
    return result


@contextmanager
def node(folder: Path, name: str, program: str, config: str) -> Iterator[tuple[str, ...]]:
    """Yield ctr's command for a containerd with the snapshotter `name`, run by `program`."""
    (folder / "snapshots").mkdir(parents=True)
    snapshots = ("--root", str(folder / "snapshots"), "--address", str(folder / f"{program}.sock"))
    containerd = CONTAINERD.format(folder=folder, name=name, program=program)
    with ExitStack() as stack:
        stack.callback(unmount, folder)
        for started, text, options in ((program, config, snapshots), ("containerd", containerd, ())):
            file = folder / f"{started}.toml"
            file.write_text(text)
            stack.enter_context(daemon(folder, started, "--config", str(file), *options))
        yield ("ctr", "-a", str(folder / "containerd.sock"))


def write_login(folder: Path, host: str) -> None:
    """Write the registry's login where the daemons of a node look for it."""
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": login}}}))


@contextmanager
def mounted(ctr: tuple[str, ...], snapshotter: str, image: str, view: Path) -> Iterator[Path]:
    """Mount an image that was pulled."""
    view.mkdir()
    run(*ctr, "images", "mount", "--snapshotter", snapshotter, image, str(view))
    try:
        yield view
    finally:
        run("umount", str(view))


@contextmanager
def daemon(folder: Path, program: str, *options: str) -> Iterator[None]:
    """Run a program until the end of the context; yields once it has made its socket."""
    with (folder / f"{program}.log").open("wb") as log:
        environ = {**os.environ, "DOCKER_CONFIG": str(folder)}
        process = subprocess.Popen([program, *options], stdout=log, stderr=log, env=environ)
    try:
        deadline = time.monotonic() + 30
        while not (folder / f"{program}.sock").exists():
            log_text = (folder / f"{program}.log").read_text()
            assert process.poll() is None, log_text
            assert time.monotonic() < deadline, log_text
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def unmount(folder: Path) -> None:
    """Take away what is mounted below a folder."""
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        if line.split()[1].startswith(f"{folder}/"):
            run("umount", "--lazy", line.split()[1])


def run(*command: str) -> str:
    """Return a program's standard output; standard error is in the failure of a test."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout
