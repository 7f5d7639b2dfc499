"""The meeting of a job's nodes, each a process."""

import os
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from rdma_images.jobs.node import neighbours, rdma_devices
from tests.support.node_files import write_device


def meet(monkeypatch: pytest.MonkeyPatch, *facts: dict[str, str]) -> list[list[str]]:
    """Return the sentences of nodes that meet, each a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(neighbours, "PORT", free.getsockname()[1])
    readers = []
    for rank, node in enumerate(facts):
        reader, writer = os.pipe()
        if not os.fork():
            meeting = neighbours.Meeting(node, "127.0.0.1", len(facts), rank, "127.0.0.1")
            os.write(writer, "".join(f"{sentence}\n" for _, _, sentence in meeting.findings()).encode())
            meeting.wait_for_neighbour()
            os._exit(0)
        os.close(writer)
        readers.append(reader)
    texts = [os.fdopen(reader).read().splitlines() for reader in readers]
    for _ in facts:
        os.wait()
    return texts


def test_nodes_meet_and_say_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = meet(
        monkeypatch, {"node": "n1", "MTU": "9000"}, {"node": "n2", "MTU": "1500"}, {"node": "n3", "MTU": "9000"}
    )
    assert differences == [["MTU differs: 9000 on 2 of 3 nodes; 1500 on n2"], [], []]


def test_a_clock_that_is_off_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class FirstAhead(neighbours.Meeting):
        def collect(self) -> dict[str, object]:
            ahead = time.time() + 100
            monkeypatch.setattr(time, "time", lambda: ahead)
            return super().collect()

    monkeypatch.setattr(neighbours, "Meeting", FirstAhead)
    sentences, _ = meet(monkeypatch, {"node": "n1"}, {"node": "n2"})
    assert sentences in (["the clock of n2 is -100 s off"], ["the clock of n2 is -99 s off"])  # it may come later


def test_the_number_of_usable_devices_is_compared(tmp_path: Path) -> None:
    facts = []
    for name, usable in (("n1", True), ("n2", False)):
        write_device(tmp_path / name, "erdma_0", "erdma")
        write_device(tmp_path / name, "erdma_1", "erdma", usable=usable)
        root = str(tmp_path / name)
        facts.append(neighbours.node_facts(root, rdma_devices.read_devices(root), name, (2, 30, 7)))
    assert neighbours.describe_differences(facts) == [
        "number of usable RDMA devices differs: 2 on 1 of 2 nodes; 1 on n2"
    ]
    facts[1].update({"NCCL": "2.28.9", "torch": "2.15.0"})
    differences = neighbours.describe_differences(facts)
    assert "NCCL differs: 2.30.7 on 1 of 2 nodes; 2.28.9 on n2" in differences
    assert "torch differs: nothing on 1 of 2 nodes; 2.15.0 on n2" in differences


def test_a_node_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MEETING_SECONDS", 0.5)
    monkeypatch.setattr(neighbours, "PORT", 0)
    meeting = neighbours.Meeting({"node": "n1"}, "127.0.0.1", 2, 0, "127.0.0.1")
    ((severity, _, sentence),) = meeting.findings()
    assert (severity, sentence) == ("warning", "not compared with the other nodes: of 2 nodes [1] did not come in 0 s")


def test_a_second_first_node_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in NVIDIA/nvidia-resiliency-ext issue 142: both nodes say that they are node 0."""
    monkeypatch.setattr(neighbours, "MEETING_SECONDS", 0.5)
    monkeypatch.setattr(neighbours, "PORT", 0)
    meeting = neighbours.Meeting({"node": "n2"}, "127.0.0.1", 2, 0, "203.0.113.7")
    ((_, _, sentence),) = meeting.findings()
    assert sentence.endswith(
        "[1] did not come in 0 s; this node has the number 0, and MASTER_ADDR, 203.0.113.7, is not its "
        "address: give each node its number"
    )


def test_two_nodes_of_one_number_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(neighbours, "PORT", free.getsockname()[1])
    first = neighbours.Meeting({"node": "n1"}, "127.0.0.1", 3, 0, "127.0.0.1")
    others = [neighbours.Meeting({"node": name}, "127.0.0.1", 3, 1, "127.0.0.1") for name in ("n2", "n3")]
    threads = [threading.Thread(target=lambda meeting=meeting: list(meeting.findings())) for meeting in others]
    for thread in threads:
        thread.start()
    ((severity, _, sentence),) = first.findings()
    for thread in threads:
        thread.join()
    assert severity == "warning"
    assert re.search(r"n[23] and n[23] both say that they are node 1", sentence)


def test_a_node_whose_number_the_job_does_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(neighbours, "PORT", free.getsockname()[1])
    first, other = (neighbours.Meeting({"node": f"n{rank}"}, "127.0.0.1", 2, rank, "127.0.0.1") for rank in (0, 2))
    thread = threading.Thread(target=lambda: list(other.findings()))
    thread.start()
    ((_, _, sentence),) = first.findings()
    thread.join()
    assert "n2 says that it is node 2 of 2" in sentence


def test_who_is_waited_for_is_said_early(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(neighbours, "MEETING_SECONDS", 1.0)
    monkeypatch.setattr(neighbours, "NOTE_SECONDS", 0.1)
    monkeypatch.setattr(neighbours, "PORT", 0)
    assert len(list(neighbours.Meeting({"node": "n1"}, "127.0.0.1", 3, 0, "127.0.0.1").findings())) == 1
    assert "note neighbours: of 3 nodes [1, 2] did not come in 0 s; waiting" in capsys.readouterr().out
    assert len(list(neighbours.Meeting({"node": "n2"}, "127.0.0.1", 3, 1, "n1.invalid").findings())) == 1
    assert "note neighbours: the first node, n1.invalid, is not resolved here so far: " in capsys.readouterr().out


def test_what_scans_ports_does_not_keep_the_nodes_from_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in NVIDIA/nccl issue 1612."""
    monkeypatch.setattr(neighbours, "LEAVING_SECONDS", 0.5)
    monkeypatch.setattr(neighbours, "MEETING_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(neighbours, "PORT", free.getsockname()[1])
    meeting = neighbours.Meeting({"node": "n1"}, "127.0.0.1", 2, 0, "127.0.0.1")
    has_ended = threading.Event()

    def scan() -> None:
        while not has_ended.wait(0.05):
            for port in (neighbours.PORT, meeting.listener.getsockname()[1]):
                with socket.socket() as probe:
                    probe.connect_ex(("127.0.0.1", port))

    def meet() -> None:
        list(meeting.findings())
        meeting.wait_for_neighbour()
        has_ended.set()

    scanner, node = threading.Thread(target=scan, daemon=True), threading.Thread(target=meet, daemon=True)
    scanner.start()
    node.start()
    assert has_ended.wait(20)


def test_a_neighbour_that_is_not_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = neighbours.Meeting({"node": "n1"}, "127.0.0.1", 2, 1, "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()
    monkeypatch.setattr(meeting, "report", lambda: {"neighbour": ("n2", closed, [], None), "differences": []})
    ((severity, _, sentence),) = meeting.findings()
    assert severity == "error"
    assert sentence.startswith("n2 is not reached at 127.0.0.1, over which NCCL starts: ")


@pytest.mark.parametrize(
    ("error", "is_firewall"),
    [
        (ConnectionRefusedError(111, "Connection refused"), False),
        (TimeoutError("timed out"), True),
        (OSError(113, "No route to host"), True),  # as an ICMP of a firewall says it
    ],
)
def test_what_a_firewall_drops(error: OSError, is_firewall: bool) -> None:
    assert ("a firewall or security group may drop it" in neighbours.describe_connection_error(error)) == is_firewall


def test_a_first_node_that_gives_no_answer_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a third node does not come: the first one closes the connections that it has."""
    with socket.create_server(("127.0.0.1", 0)) as first:
        monkeypatch.setattr(neighbours, "PORT", first.getsockname()[1])
        meeting = neighbours.Meeting({"node": "n2"}, "127.0.0.1", 3, 1, "127.0.0.1")
        closing = threading.Thread(target=lambda: first.accept()[0].makefile().readline())
        closing.start()
        ((severity, _, sentence),) = meeting.findings()
        closing.join()
    assert severity == "warning"
    assert sentence.startswith("not compared with the other nodes: the first node closed the connection")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.0\r\n\r\n", b"[1]\n", b'{"node": "n"}\n'])
def test_what_is_no_node_does_not_end_the_meeting(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.close()
        assert neighbours.read_facts(ours) is None


def test_a_neighbour_that_closes_before_a_large_message_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "LARGE_MESSAGE", 1024)  # less than the buffers of a connection take
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = socket.create_connection(server.getsockname())
        closing = threading.Thread(target=lambda: server.accept()[0].makefile("rb").read(1024))
        closing.start()
        ((severity, _, sentence),) = neighbours.check_large_message(connection, "n2")
        closing.join()
    assert severity == "error"
    assert "n2 is reached, and a message of 1 KiB does not arrive" in sentence


def test_a_neighbour_that_gets_no_large_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in NVIDIA/nccl-tests issue 236: small messages arrive, and large ones do not."""
    meeting = neighbours.Meeting({"node": "n1"}, "127.0.0.1", 2, 1, "127.0.0.1")
    monkeypatch.setattr(neighbours, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        answer: dict[str, object] = {"neighbour": ("n2", silent.getsockname(), [], None), "differences": []}
        monkeypatch.setattr(meeting, "report", lambda: answer)
        ((severity, _, sentence),) = meeting.findings()
    assert severity == "error"
    assert sentence.startswith("n2 is reached, and a message of 256 KiB does not arrive (timed out): compare the MTU")


def test_a_neighbour_whose_announced_address_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ray-project/ray issue 60817: vLLM takes the address of the default route."""
    meeting = neighbours.Meeting({"node": "n1"}, "127.0.0.1", 2, 1, "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()
    answer: dict[str, object] = {"neighbour": ("n2", meeting.facts["address"], [], closed), "differences": []}
    monkeypatch.setattr(meeting, "report", lambda: answer)
    ((severity, _, sentence),) = meeting.findings()
    assert severity == "warning"
    assert sentence.startswith("n2 is not reached at 127.0.0.1, which vLLM, SGLang and Ray announce there (")


@pytest.mark.parametrize("address", ["", "127.0.0.1", "203.0.113.7"])
def test_an_announced_address_that_is_not_listened_on(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """There is no default route; it is the address that NCCL takes; no interface has it."""
    monkeypatch.setattr(neighbours, "announced_address", lambda: address)
    assert neighbours.Meeting({"node": "n1"}, "127.0.0.1", 2, 0, "127.0.0.1").facts["announced"] is None


@pytest.mark.parametrize(("variables", "severity"), [({"SLURM_JOB_ID": "7"}, "error"), ({}, "warning")])
def test_a_first_node_whose_name_is_not_resolved(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], severity: str
) -> None:
    monkeypatch.setattr(neighbours, "MEETING_SECONDS", 0.1)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    meeting = neighbours.Meeting({"node": "n2"}, "127.0.0.1", 2, 1, "n1.invalid")
    ((actual_severity, name, sentence),) = meeting.findings()
    assert (actual_severity, name) == (severity, "names")
    assert sentence.startswith("the name of the first node, n1.invalid, is not resolved here (")


def test_settings_that_differ_between_nodes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_0")
    monkeypatch.setenv("NCCL_DEBUG_FILE", "/tmp/a")
    facts = neighbours.node_facts("", [], "a")
    assert facts["NCCL_IB_HCA"] == "mlx5_0"
    assert "NCCL_DEBUG_FILE" not in facts
    other = {**facts, "node": "b"}
    del other["NCCL_IB_HCA"]
    assert neighbours.describe_differences([facts, other]) == [
        "NCCL_IB_HCA differs: mlx5_0 on 1 of 2 nodes; nothing on b"
    ]


def test_ports_that_differ_between_nodes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in pytorch/pytorch issue 53395: each process takes a free port of its own."""
    facts = []
    for name in ("a", "b"):
        monkeypatch.setenv("MASTER_PORT", "2345" + name)
        monkeypatch.setenv("MASTER_ADDR", "localhost" if name == "a" else "a")
        facts.append(neighbours.node_facts("", [], name))
    assert neighbours.describe_differences(facts) == ["MASTER_PORT differs: 2345a on 1 of 2 nodes; 2345b on b"]


def test_nodes_whose_names_have_addresses_of_two_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in pytorch/gloo issue 399."""
    facts = []
    for name, address in (("a", "192.0.2.1"), ("b", "fd77::2")):
        monkeypatch.setattr(neighbours, "first_address", lambda _, address=address: address)
        facts.append(neighbours.node_facts("", [], name))
    assert neighbours.describe_differences(facts) == [
        "the family of the node's own address differs: IPv4 on 1 of 2 nodes; IPv6 on b"
    ]


@pytest.mark.parametrize(
    ("local", "network", "count"), [("host 1", "host 1", 0), ("host 1", "other 1", 1), ("", "", 1)]
)
def test_addresses_that_a_host_shares_with_itself(
    local: str, network: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks of Slurm on one host have its addresses, and reach each other at them."""
    rows = [["lo", "127.0.0.1", True]]
    facts = {"node": "n1", "number of usable RDMA devices": "0", "interfaces": rows, "network": local}
    meeting = neighbours.Meeting(facts, "127.0.0.1", 2, 1, "127.0.0.1")
    neighbour: tuple[object, ...] = ("n2", meeting.facts["address"], [], None)
    answer: dict[str, object] = {"neighbour": neighbour, "differences": [], "interfaces": rows, "network": network}
    monkeypatch.setattr(meeting, "report", lambda: answer)
    assert sum("no address between nodes" in sentence for _, _, sentence in meeting.findings()) == count
    meeting.wait_for_neighbour()
