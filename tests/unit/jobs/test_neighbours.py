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


@pytest.fixture(autouse=True)
def _short_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a meeting end soon after its last connection."""
    monkeypatch.setattr(neighbours, "IDLE_SECONDS", 0.3)


def findings(meeting: neighbours.Meeting) -> list[tuple[str, str, str]]:
    """Return the findings of one node of a meeting."""
    with meeting:
        return list(meeting.findings())


def meet(monkeypatch: pytest.MonkeyPatch, *facts: dict[str, str]) -> list[list[str]]:
    """Return the sentences of nodes that meet, each a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(neighbours, "PORT", free.getsockname()[1])
    readers = []
    for rank, node in enumerate(facts):
        reader, writer = os.pipe()
        if not os.fork():
            with neighbours.Meeting(node, "127.0.0.1", len(facts), rank, "127.0.0.1") as meeting:
                os.write(writer, "".join(f"{sentence}\n" for _, _, sentence in meeting.findings()).encode())
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
        def collect_facts(self) -> dict[str, object]:
            ahead = time.time() + 100
            monkeypatch.setattr(time, "time", lambda: ahead)
            return super().collect_facts()

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
    assert findings(meeting) == [("error", "neighbour", "of 2 nodes [1] did not come in 0 s")]


def test_a_second_first_node_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in NVIDIA/nvidia-resiliency-ext issue 142: both nodes say that they are node 0."""
    monkeypatch.setattr(neighbours, "MEETING_SECONDS", 0.5)
    monkeypatch.setattr(neighbours, "PORT", 0)
    meeting = neighbours.Meeting({"node": "n2"}, "127.0.0.1", 2, 0, "203.0.113.7")
    ((_, _, sentence),) = findings(meeting)
    assert sentence.endswith(
        "[1] did not come in 0 s; this node has the number 0, and MASTER_ADDR, 203.0.113.7, is not its "
        "address: give each node its number"
    )


def test_two_nodes_of_one_number_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(neighbours, "PORT", free.getsockname()[1])
    first = neighbours.Meeting({"node": "n1"}, "127.0.0.1", 3, 0, "127.0.0.1")
    others = [neighbours.Meeting({"node": name}, "127.0.0.1", 3, 1, "127.0.0.1") for name in ("n2", "n3")]
    threads = [threading.Thread(target=lambda meeting=meeting: findings(meeting)) for meeting in others]
    for thread in threads:
        thread.start()
    ((severity, name, sentence),) = findings(first)
    for thread in threads:
        thread.join()
    assert (severity, name) == ("error", "neighbour")
    assert re.search(r"n[23] and n[23] both say that they are node 1", sentence)


def test_a_node_whose_number_the_job_does_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(neighbours, "PORT", free.getsockname()[1])
    first, other = (neighbours.Meeting({"node": f"n{rank}"}, "127.0.0.1", 2, rank, "127.0.0.1") for rank in (0, 2))
    thread = threading.Thread(target=lambda: findings(other))
    thread.start()
    ((_, _, sentence),) = findings(first)
    thread.join()
    assert "n2 says that it is node 2 of 2" in sentence


def test_who_is_waited_for_is_said_early(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(neighbours, "MEETING_SECONDS", 1.0)
    monkeypatch.setattr(neighbours, "REPEAT_SECONDS", 0.2)
    monkeypatch.setattr(neighbours, "NOTE_SECONDS", 0.1)
    monkeypatch.setattr(neighbours, "PORT", 0)
    assert len(findings(neighbours.Meeting({"node": "n1"}, "127.0.0.1", 3, 0, "127.0.0.1"))) == 1
    notes = capsys.readouterr().out
    assert "note neighbours: of 3 nodes [1, 2] did not come in 0 s; waiting" in notes
    assert notes.count("did not come") > 1  # again and again, while it waits
    assert len(findings(neighbours.Meeting({"node": "n2"}, "127.0.0.1", 3, 1, "n1.invalid"))) == 1
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
            for port in (neighbours.PORT, *(address[1] for address in [meeting.facts.get("address")] if address)):
                with socket.socket() as probe:
                    probe.connect_ex(("127.0.0.1", port))

    def meet() -> None:
        findings(meeting)
        has_ended.set()

    scanner, node = threading.Thread(target=scan, daemon=True), threading.Thread(target=meet, daemon=True)
    scanner.start()
    node.start()
    assert has_ended.wait(20)


def test_a_neighbour_that_is_not_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = neighbours.Meeting({"node": "n1"}, "127.0.0.1", 2, 1, "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()
    monkeypatch.setattr(meeting, "report_facts", lambda: {"neighbour": ("n2", closed, [], None), "differences": []})
    ((severity, _, sentence),) = findings(meeting)
    assert severity == "error"
    assert sentence.startswith("n2 is not reached at 127.0.0.1, over which NCCL starts: ")


@pytest.mark.parametrize(
    ("error", "address", "reason"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "127.0.0.1", "Connection refused"),
        (TimeoutError("timed out"), "127.0.0.1", "a firewall or security group may drop it"),
        (OSError(113, "No route to host"), "127.0.0.1", "a firewall or security group may drop it"),  # by ICMP
        (TimeoutError("timed out"), "203.0.113.7", "203.0.113.7 is in no network of this node's interfaces"),
        (ConnectionRefusedError(111, "Connection refused"), "203.0.113.7", "Connection refused"),
    ],
)
def test_why_nothing_answers(error: OSError, address: str, reason: str) -> None:
    description = neighbours.describe_connection_error(error, address)
    assert reason in description
    assert ("firewall or security group" in description) == ("firewall or security group" in reason)


def test_a_first_node_that_gives_no_answer_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a third node does not come: the first one closes the connections that it has."""
    with socket.create_server(("127.0.0.1", 0)) as first:
        monkeypatch.setattr(neighbours, "PORT", first.getsockname()[1])
        meeting = neighbours.Meeting({"node": "n2"}, "127.0.0.1", 3, 1, "127.0.0.1")
        closing = threading.Thread(target=lambda: first.accept()[0].makefile().readline())
        closing.start()
        ((severity, _, sentence),) = findings(meeting)
        closing.join()
    assert severity == "error"
    assert sentence.startswith("the first node closed the connection")


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
        monkeypatch.setattr(meeting, "report_facts", lambda: answer)
        ((severity, _, sentence),) = findings(meeting)
    assert severity == "error"
    assert sentence.startswith("n2 is reached, and a message of 256 KiB does not arrive (timed out): compare the MTU")


def test_a_neighbour_whose_announced_address_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ray-project/ray issue 60817: vLLM takes the address of the default route."""
    meeting = neighbours.Meeting({"node": "n1"}, "127.0.0.1", 2, 1, "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()
    with meeting:
        answer: dict[str, object] = {"neighbour": ("n2", meeting.facts["address"], [], closed), "differences": []}
        monkeypatch.setattr(meeting, "report_facts", lambda: answer)
        ((severity, _, sentence),) = meeting.findings()
    assert severity == "warning"
    assert sentence.startswith("n2 is not reached at 127.0.0.1, which vLLM, SGLang and Ray announce there (")


@pytest.mark.parametrize("address", ["", "127.0.0.1", "203.0.113.7"])
def test_an_announced_address_that_is_not_listened_on(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """There is no default route; it is the address that NCCL takes; no interface has it."""
    monkeypatch.setattr(neighbours, "announced_address", lambda: address)
    with neighbours.Meeting({"node": "n1"}, "127.0.0.1", 2, 0, "127.0.0.1") as meeting:
        assert meeting.facts["announced"] is None


def test_a_first_node_whose_name_is_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MEETING_SECONDS", 0.1)
    ((severity, name, sentence),) = findings(neighbours.Meeting({"node": "n2"}, "127.0.0.1", 2, 1, "n1.invalid"))
    assert (severity, name) == ("error", "names")
    assert sentence.startswith("the name of the first node, n1.invalid, is not resolved here (")


def test_a_first_node_that_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error ends the job before the all-reduce, whose ranks would wait for that node once more."""
    monkeypatch.setattr(neighbours, "MEETING_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(neighbours, "PORT", free.getsockname()[1])
    ((severity, name, sentence),) = findings(neighbours.Meeting({"node": "n2"}, "127.0.0.1", 2, 1, "127.0.0.1"))
    assert (severity, name) == ("error", "neighbour")
    assert sentence.startswith("the first node is not reached at 127.0.0.1: ")


def test_torch_on_some_nodes_alone_is_an_error_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = meet(monkeypatch, {"node": "n1", "torch": "2.15.0"}, {"node": "n2", "torch": ""})
    assert sentences == [
        ["torch differs: 2.15.0 on 1 of 2 nodes; nothing on n2"],
        ["this node's python3 has no torch, and n1 has 2.15.0: run the same image on all nodes"],
    ]


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
    with meeting:
        neighbour: tuple[object, ...] = ("n2", meeting.facts["address"], [], None)
        answer: dict[str, object] = {"neighbour": neighbour, "differences": [], "interfaces": rows, "network": network}
        monkeypatch.setattr(meeting, "report_facts", lambda: answer)
        assert sum("no address between nodes" in sentence for _, _, sentence in meeting.findings()) == count
