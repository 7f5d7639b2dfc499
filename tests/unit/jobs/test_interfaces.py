"""The check of the interfaces of NCCL's sockets."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.jobs.node import interfaces
from rdma_images.jobs.node.interfaces import Interface
from tests.support.node_files import run_check, write_file


@pytest.mark.parametrize(
    ("setting", "chosen"),
    [
        ("", "ib0"),
        ("eth", "eth0"),
        ("=eth", None),
        ("^lo,docker,ib", "eth0"),
        ("ens", None),
        ("docker", "docker0"),
    ],
)
def test_the_interface_that_nccl_starts_over(setting: str, chosen: str | None) -> None:
    names = {"lo": "127.0.0.1", "docker0": "172.17.0.1", "eth0": "192.0.2.1", "ib0": "192.0.2.9"}
    row = interfaces.bootstrap_interface([Interface(name, address, True) for name, address in names.items()], setting)
    assert (row and row[0]) == chosen


BRIDGE = "br-4c1f0e2ad9b7"  # as Docker names the bridge of a network


@pytest.mark.parametrize(
    ("rows", "nccl", "chosen"),
    [
        (("lo", "docker0", "eth0"), None, "eth0"),
        (("lo", "docker0"), None, "docker0"),
        (("lo", "virbr0", "eth0"), (2, 30, 7), "eth0"),
        (("lo", "virbr0", "eth0"), (2, 18, 3), "virbr0"),
        (("lo", BRIDGE, "eth0"), (2, 30, 7), BRIDGE),
        (("lo", f"{BRIDGE} down", "eth0"), (2, 30, 7), "eth0"),
        (("lo", f"{BRIDGE} down", "eth0"), None, "eth0"),
        (("lo", f"{BRIDGE} down", "eth0"), (2, 27, 7), BRIDGE),
        (("lo", "ib0 down", "tailscale0", "eth0"), (2, 28, 3), "tailscale0"),
        ((), None, None),
    ],
)
def test_the_rule_of_a_version_of_nccl(
    rows: tuple[str, ...], nccl: tuple[int, int, int] | None, chosen: str | None
) -> None:
    """NVIDIA/nccl, src/misc/socket.cc: 2.18.3 to 2.27.7, then 2.28.3 to 2.30.7."""
    table = [Interface(row.split()[0], "192.0.2.1", not row.endswith(" down")) for row in rows]
    row = interfaces.bootstrap_interface(table, "", nccl)
    assert (row and row[0]) == chosen


@pytest.mark.parametrize(
    ("name", "address", "setting", "expected"),
    [
        ("lo", "127.0.0.1", "", ("error", "which other nodes do not reach")),
        ("docker0", "172.17.0.1", "docker0", ("warning", "which other nodes do not reach")),
        (BRIDGE, "172.18.0.1", "", ("warning", "which other nodes do not reach")),
        ("br-ex", "192.0.2.1", "", None),  # OVN's, with the node's own address
        ("br0", "192.0.2.1", "", None),
        ("tailscale0", "100.64.0.7", "", ("warning", "a VPN's")),
        ("tailscale0", "100.64.0.7", "tailscale0", None),
        ("wg0", "10.8.0.2", "", ("warning", "a VPN's")),
        ("tunl0", "10.8.0.2", "", None),  # Calico's, between the nodes
        ("enp1s0f0np0", "169.254.7.1", "", None),  # a cable between two DGX Spark
    ],
)
def test_interfaces_that_lead_to_no_other_node(
    name: str, address: str, setting: str, expected: tuple[str, str] | None
) -> None:
    row = Interface(name, address, True)
    yielded = list(interfaces.check_bootstrap([row], row, setting, 2))
    assert not list(interfaces.check_bootstrap([row], row, setting, 1))
    assert [severity for severity, _, _ in yielded] == ([expected[0]] if expected else [])
    assert all(expected and f"NCCL will start over {name} ({address}), {expected[1]}" in row[2] for row in yielded)


def test_a_setting_that_fits_no_interface_names_those_that_are_here() -> None:
    """As in ray-project/ray issue 30333."""
    states = (("lo", True), ("wlp3s0", True), ("enp4s0", False))
    rows = [Interface(name, "192.0.2.1", is_running) for name, is_running in states]
    ((_, _, sentence),) = interfaces.check_bootstrap(rows, None, "en,eth", 2)
    assert sentence == "NCCL_SOCKET_IFNAME=en,eth fits no interface that is up: lo, wlp3s0, enp4s0 (down)"


def test_an_address_of_its_own_that_a_node_does_not_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in NVIDIA/nccl issue 352: a firewall takes what is sent to the node's own interface."""
    row = Interface("lo", "127.0.0.1", True)
    assert not list(interfaces.check_own_address(row))
    monkeypatch.setattr(interfaces, "OWN_SECONDS", 0.2)
    create_server = socket.create_server
    with create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        monkeypatch.setattr(socket, "create_server", lambda _: full.dup())
        with socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(full.getsockname())
            ((severity, _, sentence),) = interfaces.check_own_address(row)
    assert severity == "error"
    assert sentence.startswith("this node does not reach its own address 127.0.0.1 of lo")


@pytest.mark.parametrize(
    ("setting", "count"), [("", 0), ("eth0", 0), ("lo,eth0", 0), ("eth", 1), ("^lo,docker", 1), ("=eth0", 1)]
)
def test_gloo_takes_whole_names_of_interfaces(setting: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in aws-samples/aws-do-eks pull request 51."""
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    assert len(list(interfaces.check_gloo_names(setting))) == count


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("ip"), reason="only root may make a network")
def test_interfaces_of_a_network_of_its_own() -> None:
    """A bridge without a link comes before the node's own interface, as after a restart of the network."""
    setup = f"""ip link set lo up
ip link add {BRIDGE} type veth peer name port0 && ip addr add 172.18.0.1/16 dev {BRIDGE} && ip link set {BRIDGE} up
ip link add eth0 type veth peer name eth1 && ip addr add 192.0.2.1/24 dev eth0
ip link set eth0 up && ip link set eth1 up
until ip link show {BRIDGE} | grep -q NO-CARRIER && ! ip link show eth0 | grep -q NO-CARRIER; do sleep 0.1; done
exec "$@"
"""
    program = (
        "from rdma_images.jobs.node import interfaces\nrows = interfaces.read_interfaces()\n"
        "print([tuple(row) for row in rows])\n"
        "print([interfaces.bootstrap_interface(rows, '', nccl)[0] for nccl in ((2, 27, 7), (2, 30, 7))])"
    )
    command = ["unshare", "--net", "sh", "-ec", setup, "sh", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [("lo", "127.0.0.1", True), (BRIDGE, "172.18.0.1", False), ("eth0", "192.0.2.1", True)]
    assert done.stdout.splitlines() == [str(rows), str([BRIDGE, "eth0"])], done.stderr


def test_an_interface_inside_the_node(tmp_path: Path) -> None:
    lines = run_check(tmp_path, "--nodes=2", NCCL_SOCKET_IFNAME="lo")
    assert any(line.startswith("error interface: NCCL will start over lo (127.0.0.1), which other") for line in lines)
    lines = run_check(tmp_path, NCCL_SOCKET_IFNAME="none")
    assert any(line.startswith("error interface: NCCL_SOCKET_IFNAME=none fits no interface") for line in lines)


ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eno1\t00000000\t0100A8C0\t0003\t0\t0\t{0}\t00000000\t0\t0\t0
eno1\t0000A8C0\t00000000\t0001\t0\t0\t{0}\t00F0FFFF\t0\t0\t0
enp37s0f0\t0000A8C0\t00000000\t0001\t0\t0\t{1}\t00F0FFFF\t0\t0\t0
"""


@pytest.mark.parametrize(
    ("metrics", "chosen", "taken"),
    [
        ((0, 0), "eno1", ""),
        ((0, 0), "enp37s0f0", "eno1"),
        ((101, 100), "eno1", "enp37s0f0"),
        ((101, 100), "enp37s0f0", ""),
    ],
)
def test_two_interfaces_of_one_network(tmp_path: Path, metrics: tuple[int, int], chosen: str, taken: str) -> None:
    write_file(tmp_path / "proc/net/route", ROUTES.format(*metrics))
    sentences = [
        sentence for _, _, sentence in interfaces.check_route(str(tmp_path), Interface(chosen, "192.168.0.1", True))
    ]
    expected = f"NCCL starts over {chosen}, and the kernel sends to its network over {taken}"
    assert [sentence.startswith(expected) for sentence in sentences] == ([True] if taken else [])


def test_a_service_mesh_in_the_pod(tmp_path: Path) -> None:
    row = "   {}: 00000000:{} 00000000:0000 {} 00000000:00000000 00:00000000 00000000  1337        0 1\n"
    write_file(tmp_path / "proc/net/tcp", "".join(row.format(n, port, "0A") for n, port in enumerate(("3A99", "3A9E"))))
    assert any(line.startswith("warning proxy: Istio's proxy takes") for line in run_check(tmp_path, "--nodes=2"))
    write_file(tmp_path / "proc/net/tcp", row.format(0, "3A99", "0A") + row.format(1, "3A9E", "01"))
    assert not any("proxy" in line for line in run_check(tmp_path, "--nodes=2"))


def test_addresses_that_nodes_share() -> None:
    """As in NVIDIA/nccl issue 697: NCCL's sockets take the bridges of Docker, too."""
    local_rows = [("bond0", "10.0.0.1", True), ("br-1", "172.18.0.1", True)]
    peer = [["bond0", "10.0.0.2", True], ["br-1", "172.18.0.1", True]]
    ((severity, _, sentence),) = interfaces.check_shared_addresses(local_rows, "n2", peer, "10.0.0.2")
    assert severity == "warning"
    assert sentence == (
        "NCCL's sockets use br-1 (172.18.0.1), too, and n2 has the same addresses: set NCCL_SOCKET_IFNAME=bond0"
    )
    assert not list(interfaces.check_shared_addresses(local_rows[:1], "n2", peer, "10.0.0.2"))


def test_the_address_of_a_containers_network_on_both_nodes() -> None:
    """As in deepinsight/insightface issue 1444: no advice to take that interface."""
    rows = [("eth0", "172.17.0.2", True)]
    ((severity, _, sentence),) = interfaces.check_shared_addresses(rows, "n2", rows, "172.17.0.2")
    assert severity == "error"
    assert sentence.startswith("NCCL starts over 172.17.0.2 here and on n2, too")


VETH = """\
fe800000000000000000000000000001 05 40 20 80 veth75fa783
fe800000000000000000000000000002 02 40 20 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
"""


@pytest.mark.parametrize(
    ("table", "setting", "family", "expected"),
    [
        (
            VETH,
            "",
            "",
            "warning NCCL's sockets use veth75fa783 (fe80::1), too, which other nodes do not reach: set NCC",
        ),
        (VETH, "eth0", "", ""),
        (VETH, "", "AF_INET", ""),
        (VETH.replace("veth75fa783", "eth1"), "", "", ""),
        ("", "", "", ""),
        ("", "", "AF_INET6", "error NCCL_SOCKET_FAMILY=AF_INET6, and no interface has an address of IPv6"),
    ],
)
def test_interfaces_of_ipv6(tmp_path: Path, table: str, setting: str, family: str, expected: str) -> None:
    """As in pytorch/pytorch issue 68893 and anhvth/opensloth pull request 16."""
    write_file(tmp_path / "proc/net/if_inet6", table)
    rows = interfaces.ipv6_interfaces(str(tmp_path))
    findings = interfaces.check_ipv6([Interface("eth0", "10.0.0.1", True)], rows, setting, family)
    sentences = [f"{severity} {sentence}" for severity, _, sentence in findings]
    assert [text[: len(expected)] for text in sentences] == ([expected] if expected else [])


def test_what_a_sandbox_does_not_show_is_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"[\da-f-]{36} \d+", interfaces.network_identity())
    monkeypatch.setattr(interfaces, "first_line", lambda _: "")
    assert interfaces.network_identity() == ""
