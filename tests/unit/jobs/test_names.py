"""The check of names and ports."""

import ipaddress
import socket

import pytest

from rdma_images.jobs.node import names
from rdma_images.jobs.node.interfaces import Interface


@pytest.mark.parametrize(
    ("addresses", "rank", "expected"),
    [
        ({"own": "10.0.0.2", "first": "10.0.0.1"}, 1, []),
        ({"own": "127.0.1.1", "first": "10.0.0.1"}, 1, [("warning", "own, this node's name, is 127.0.1.1 here")]),
        ({"own": "", "first": "10.0.0.1"}, 1, [("warning", "own, this node's name, has no address here")]),
        ({"own": "10.9.9.9", "first": "10.0.0.1"}, 1, [("warning", "own, this node's name, is 10.9.9.9 here, which")]),
        ({"own": None, "first": "10.0.0.1"}, 1, [("warning", "own, this node's name, is not resolved within 3 s")]),
        ({"own": "fd77::2", "first": "10.0.0.1"}, 1, []),
        ({"own": "::1", "first": "10.0.0.1"}, 1, [("warning", "own, this node's name, is ::1 here")]),
        (
            {"own": "10.0.0.2", "first": "127.0.1.1"},
            1,
            [("warning", "MASTER_ADDR, first, leads to this node itself: correct")],
        ),
        ({"own": "10.0.0.2", "first": "127.0.1.1"}, 0, []),
    ],
)
def test_names_of_nodes(
    addresses: dict[str, str | None], rank: int, expected: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "own")
    monkeypatch.setattr(names, "resolve", addresses.__getitem__)
    monkeypatch.setattr(names, "first_address", addresses.__getitem__)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    actual = list(names.check_names([Interface("eth0", "10.0.0.2", True)], 2, rank, "first"))
    assert [
        (severity, sentence[: len(start)]) for (severity, _, sentence), (_, start) in zip(actual, expected, strict=True)
    ] == expected


def test_a_name_that_has_an_address_of_ipv6_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in pytorch/gloo issue 399."""
    answer = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd77::2", 0, 0, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    assert names.first_address("node-of-ipv6") == "fd77::2"


def test_a_port_in_use_on_the_first_node() -> None:
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        assert [name for _, name, _ in names.check_port(0, port)] == ["port"]
        assert not list(names.check_port(1, port))
        ((_, _, sentence),) = names.check_port(0, "23456", fixed=int(port))
        assert sentence.startswith(f"port {port}, where the ranks meet, is in use here")
        assert not list(names.check_port(1, "23456", fixed=int(port)))
    assert not list(names.check_port(0, "0"))


@pytest.mark.parametrize(
    ("port", "nodes", "start"),
    [
        ("", 2, ""),
        ("0", 2, "MASTER_PORT=0 lets each node take another free port"),
        ("80000", 1, "MASTER_PORT=80000 is no port"),
        ("$PORT", 2, "MASTER_PORT=$PORT is no port"),
    ],
)
def test_ports_where_no_ranks_meet(port: str, nodes: int, start: str) -> None:
    """As in deepspeedai/DeepSpeed issue 1656 and jaywalnut310/vits issue 52."""
    assert [sentence[: len(start)] for _, _, sentence in names.check_port(1, port, nodes)] == ([start] if start else [])


@pytest.mark.parametrize(("full_name", "count"), [("1.0.0.ip6.arpa.invalid", 1), ("localhost", 0), ("own", 0)])
def test_a_full_name_without_an_address(full_name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "own")
    monkeypatch.setattr(socket, "getfqdn", lambda _: full_name)
    assert len(list(names.check_full_name())) == count


LOOPBACK = Interface("lo", "127.0.0.1", True)


@pytest.mark.parametrize(
    ("setting", "rank", "sentence"),
    [
        ("", 0, ""),
        ("127.0.0.1:5000", 0, ""),
        ("127.0.0.1:5000", 1, ""),
        ("localhost:5000", 0, ""),
        ("[::1]:5000", 0, ""),
        ("192.0.2.1:5000", 1, "no interface here is in the network of this address: leave it out"),
        ("name.invalid:5000", 1, "name.invalid is not resolved here"),
    ],
)
def test_an_address_that_ranks_meet_at(setting: str, rank: int, sentence: str) -> None:
    """As in NCCL's issue 474."""
    errors = list(names.check_comm_id([LOOPBACK], rank, setting))
    assert [severity for severity, _, _ in errors] == (["error"] if sentence else [])
    assert all(sentence in text for _, _, text in errors)


def test_rank_0_listens_at_the_address_that_ranks_meet_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "interface_network", lambda _: ipaddress.IPv4Network("192.0.2.0/24"))
    ((_, _, sentence),) = names.check_comm_id([LOOPBACK], 0, "192.0.2.1:5000")
    assert sentence == "NCCL_COMM_ID=192.0.2.1:5000 is no address of this node, where rank 0 listens at it"
    assert not list(names.check_comm_id([LOOPBACK], 1, "192.0.2.1:5000"))
