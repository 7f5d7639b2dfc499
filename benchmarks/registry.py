"""Debian's docker-registry on the loopback interface, for benchmarks that push."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from rdma_images.core import paths
from rdma_images.engine.debian import debian_packages


@contextmanager
def running_registry(folder: Path) -> Iterator[str]:
    """Start an empty docker-registry, and yield its host."""
    packages = paths.state_folder() / "docker-registry"
    program = debian_packages.fetch(["docker-registry"], "bookworm", packages) / "usr" / "bin" / "docker-registry"
    data = folder / "data"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{listener.getsockname()[1]}"
    settings = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(data)}},
        "http": {"addr": host},
    }
    (folder / "registry.yml").write_text(json.dumps(settings))
    process = subprocess.Popen([program, "serve", str(folder / "registry.yml")], stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                requests.get(f"http://{host}/v2/", timeout=1)
                break
            except requests.ConnectionError:
                time.sleep(0.02)
        yield host
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(data, ignore_errors=True)
