"""The check of two nodes with two adapters each: which adapters reach which."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images.jobs.node import node_check
from rdma_images.jobs.write import render
from tests.e2e import unpacked
from tests.support.node_files import write_device, write_file

pytestmark = [pytest.mark.e2e, unpacked.needs]

NODES, LINKS = (1, 2), ("eth0", "roce0", "roce1")


@pytest.fixture(name="networks")
def _networks() -> Iterator[dict[int, str]]:
    """Provide two network namespaces and three links: one for NCCL's start, and two rails."""
    names = {node: f"rail{os.getpid()}-{node}" for node in NODES}
    try:
        for name in names.values():
            ip("netns", "add", name)
        for number, link in enumerate(LINKS):
            ip("link", "add", link, "netns", names[1], "type", "veth", "peer", "name", link, "netns", names[2])
            for node, name in names.items():
                ip("-n", name, "address", "add", f"10.88.{number}.{node}/24", "dev", link)
                ip("-n", name, "link", "set", link, "up")
        for name in names.values():
            wait_for_links(name)
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def wait_for_links(name: str) -> None:
    """Wait until the links of a network namespace are running."""
    deadline = time.monotonic() + 10
    states = subprocess.run(["ip", "-n", name, "-brief", "link"], capture_output=True, text=True, check=True)
    while states.stdout.count(" UP ") < len(LINKS) and time.monotonic() < deadline:
        time.sleep(0.1)
        states = subprocess.run(["ip", "-n", name, "-brief", "link"], capture_output=True, text=True, check=True)


def warnings(networks: dict[int, str], folder: Path, **variables: str) -> list[str]:
    """Return what the checks of both nodes say of rails and neighbours."""
    running = []
    for node, name in networks.items():
        root = folder / str(node)
        for rail in range(2) if not root.exists() else ():
            address = f"0000:0000:0000:0000:0000:ffff:0a58:{rail + 1:02x}{node:02x}"
            write_device(root, f"mlx5_{rail}", "mlx5_core", (address, address))
            write_file(root / f"sys/class/infiniband/mlx5_{rail}/ports/1/gid_attrs/ndevs/0", f"roce{rail}")
        meeting = [f"--root={root}", "--nodes=2", f"--rank={node - 1}", "--master=10.88.0.1"]
        command = ["ip", "netns", "exec", name, sys.executable, "-c", render.packed_program(node_check), *meeting]
        environment = {**os.environ, "NCCL_SOCKET_IFNAME": "eth0", "RDMA_IMAGES_NODE": f"n{node}", **variables}
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    lines = [line for process in running for line in process.communicate()[0].splitlines()]
    assert sum(" done in " in line for line in lines) == 2
    findings = [line.split(maxsplit=1)[1] for line in lines if " rails: " in line or " neighbour" in line]
    return sorted(line for line in findings if line.split()[1] != "note")  # of a node that is slow to come


def test_rails_that_are_apart_and_a_rail_that_is_down(networks: dict[int, str], tmp_path: Path) -> None:
    sentence = "mlx5_0 reaches mlx5_0 of {} and not mlx5_1: rails are apart, set NCCL_CROSS_NIC=0"
    apart = [f"n1 warning rails: {sentence.format('n2')}", f"n2 warning rails: {sentence.format('n1')}"]
    assert warnings(networks, tmp_path) == apart
    assert warnings(networks, tmp_path, NCCL_CROSS_NIC="0") == []
    ip("-n", networks[2], "link", "set", "roce1", "down")
    down = "mlx5_1 does not reach mlx5_1 of {} over TCP, at 10.88.2.{}"
    assert f"n1 warning rails: {down.format('n2', 2)}" in warnings(networks, tmp_path, NCCL_CROSS_NIC="0")
