"""The check of the interfaces of NCCL's sockets."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from rdma_images.preflight import interfaces
from rdma_images.preflight.interfaces import Interface
from rdma_images.preflight.system import NcclLibrary
from tests.support.preflight_parts import preflight

BRIDGE = "br-4c1f0e2ad9b7"  # as Docker names the bridge of a network


@pytest.mark.parametrize(
    ("setting", "chosen"),
    [("", "ib0"), ("eth", "eth0"), ("=eth", None), ("^lo,docker,ib", "eth0"), ("ens", None), ("docker", "docker0")],
)
def test_the_interface_that_nccl_starts_over(setting: str, chosen: str | None) -> None:
    names = {"lo": "127.0.0.1", "docker0": "172.17.0.1", "eth0": "192.0.2.1", "ib0": "192.0.2.9"}
    rows = [Interface(name, address, True) for name, address in names.items()]
    used = interfaces.socket_interfaces(rows, setting)
    assert (used[0].name if used else None) == chosen


@pytest.mark.parametrize(
    ("rows", "version", "chosen"),
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
    rows: tuple[str, ...], version: tuple[int, int, int] | None, chosen: str | None
) -> None:
    """NVIDIA/nccl, src/misc/socket.cc: 2.18.3 to 2.27.7, then 2.28.3 to 2.30.7."""
    table = [Interface(row.split()[0], "192.0.2.1", not row.endswith(" down")) for row in rows]
    used = interfaces.socket_interfaces(table, "", NcclLibrary("", version) if version else None)
    assert (used[0].name if used else None) == chosen


@pytest.mark.parametrize(
    ("name", "address", "severity"),
    [
        ("lo", "127.0.0.1", "error"),
        ("docker0", "172.17.0.1", "warning"),
        (BRIDGE, "172.18.0.1", "warning"),
        ("br-ex", "192.0.2.1", None),  # OVN's, with the node's own address
        ("br0", "192.0.2.1", None),
        ("tailscale0", "100.64.0.7", "warning"),
        ("wg0", "10.8.0.2", "warning"),
        ("tunl0", "10.8.0.2", None),  # Calico's, between the nodes
        ("enp1s0f0np0", "169.254.7.1", None),  # a cable between two DGX Spark
    ],
)
def test_interfaces_that_lead_to_no_other_node(name: str, address: str, severity: str | None) -> None:
    rows = [Interface(name, address, True)]
    found = list(interfaces.check_interfaces(rows, rows, "", 2))
    assert not list(interfaces.check_interfaces(rows, rows, "", 1))
    assert [row[0] for row in found] == ([severity] if severity else [])
    assert all(f"NCCL will start over {name} ({address})" in row[2] for row in found)


def test_a_setting_that_fits_no_interface_names_those_that_are_here() -> None:
    """As in ray-project/ray issue 30333."""
    states = (("lo", True), ("wlp3s0", True), ("enp4s0", False))
    rows = [Interface(name, "192.0.2.1", is_running) for name, is_running in states]
    ((_, _, sentence),) = interfaces.check_interfaces(rows, [], "en,eth", 2)
    assert sentence.endswith(
        "NCCL_SOCKET_IFNAME=en,eth fits no interface that is up; this node has lo, wlp3s0, enp4s0 (down)"
    )


@pytest.mark.parametrize(
    ("setting", "family", "chosen"),
    [("", "", "169.254.172.2"), ("eth0", "", "fd00::7"), ("", "AF_INET6", "fd00::7"), ("lo", "AF_INET6", None)],
)
def test_the_addresses_of_a_pod_on_ipv6(setting: str, family: str, chosen: str | None) -> None:
    """As in EKS, whose v4if0 is for egress; NVIDIA/nccl, src/misc/socket.cc skips the loopback's ::1."""
    addresses = (("lo", "127.0.0.1"), ("v4if0", "169.254.172.2"), ("eth0", "fd00::7"), ("eth0", "fe80::1%eth0"))
    rows = [Interface(name, address, True) for name, address in addresses]
    used = interfaces.socket_interfaces(rows, setting, family=family)
    assert (used[0].address if used else None) == chosen
    found = list(interfaces.check_interfaces(rows, used, setting, 2))
    assert [row[0] for row in found] == {"fd00::7": [], None: ["error"]}.get(chosen, ["warning"])


NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("ip"), reason="only root may make a network")


def run_in_network(script: str, *words: str) -> list[str]:
    """Return the lines that a script prints in a network of its own."""
    command = ["unshare", "--net", "sh", "-ec", f"ip link set lo up\n{script}", "sh", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


@NEEDS_ROOT
def test_interfaces_of_a_network_of_its_own() -> None:
    """A bridge without a link comes before the node's own interface, as after a restart of the network."""
    setup = f"""ip link add {BRIDGE} type veth peer name port0 && ip addr add 172.18.0.1/16 dev {BRIDGE}
ip link set {BRIDGE} up; ip link add eth0 type veth peer name eth1 && ip addr add 192.0.2.1/24 dev eth0
ip link set eth0 up && ip link set eth1 up
until ip link show {BRIDGE} | grep -q NO-CARRIER && ! ip link show eth0 | grep -q NO-CARRIER; do sleep 0.1; done
exec "$@"
"""
    program = (
        "from rdma_images.preflight import interfaces\n"
        "rows = interfaces.read_interfaces()\n"
        "print(*rows, interfaces.socket_interfaces(rows, '')[0].name, sep='\\n')"
    )
    lines = run_in_network(setup, sys.executable, "-c", program)
    assert lines[-1] == "eth0"
    assert re.fullmatch(rf"Interface\(name='{BRIDGE}', address='172.18.0.1', is_running=False\)", lines[1])


@NEEDS_ROOT
@pytest.mark.parametrize(("network", "scope"), [("fd00::", ""), ("fe80::7:", "%eth0")])
def test_nodes_without_ipv4_meet(network: str, scope: str) -> None:
    """Also by addresses of the link alone, which belong to an interface."""
    script = f"""unshare --net sleep 30 > /dev/null & other=$!
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.1; done
ip link add eth0 type veth peer name eth0 netns $other
for row in "$$ 1" "$other 2"; do nsenter --net --target ${{row% *}} sh -ec "ip link set eth0 addrgenmode none
ip addr add {network}${{row#* }}/64 dev eth0 nodad; ip link set eth0 up"; done
for id in $$ $other; do until nsenter --net --target $id ip link show eth0 | grep -q "state UP"; do sleep 1; done; done
nsenter --net --target $other "$@" --node 1 true & node=$!
"$@" true && wait $node && kill $other
"""
    lines = run_in_network(script, str(preflight()), "--root=/none", "--nodes=2", f"--first={network}1{scope}")
    assert sorted(line.split()[2] for line in lines) == ["result", "result", "warning", "warning"], lines
