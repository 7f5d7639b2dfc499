"""The meeting of a job's nodes, each a thread with its own place in the job."""

import re
import socket
import threading
import time
from pathlib import Path

import pytest

from rdma_images.preflight import devices, meeting
from rdma_images.preflight.job_nodes import JobNode
from rdma_images.preflight.meeting import Message
from tests.support.loopback import free_port
from tests.support.preflight_parts import write_device


def meet(numbers: list[int], nodes: int) -> list[str]:
    """Let nodes with these numbers meet and reach their neighbours; return what each found or failed with."""
    port, outcomes = free_port(), [""] * len(numbers)

    def answer(messages: list[Message]) -> list[Message]:
        return [{"next": following} for following in messages[1:] + messages[:1]]

    def take_part(place: int, number: int) -> None:
        try:
            with meeting.Meeting(JobNode(nodes, number, "127.0.0.1"), "127.0.0.1", port) as met:
                following = met.exchange({"number": number, "address": met.own_address}, answer)["next"]
                found = list(meeting.check_neighbour(f"n{following['number']}", following["address"]))
                everybody = met.exchange({"number": number}, lambda rows: [{"all": rows}] * len(rows))["all"]
                outcomes[place] = f"{following['number']} of {len(everybody)} {found}"
        except OSError as error:
            outcomes[place] = str(error)

    threads = [threading.Thread(target=take_part, args=row) for row in enumerate(numbers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_nodes_meet_and_each_reaches_the_next() -> None:
    assert meet([0, 1, 2], 3) == ["1 of 3 []", "2 of 3 []", "0 of 3 []"]


@pytest.mark.parametrize(("numbers", "nodes"), [([0, 1, 1], 3), ([0, 2], 2)])
def test_numbers_that_do_not_go_together_are_named(numbers: list[int], nodes: int) -> None:
    """As in NVIDIA/nvidia-resiliency-ext issue 142."""
    first, *others = meet(numbers, nodes)
    assert f"says that it is node {numbers[-1]} of {nodes}" in first
    assert "another node has left: its own lines say why" in others


def test_a_node_that_does_not_come_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(meeting, "MEETING_SECONDS", 2.0)
    monkeypatch.setattr(meeting, "FIRST_NOTE_SECONDS", 0.2)
    assert meet([0], 3) == ["of 3 nodes [1, 2] have not come"]
    assert re.search(r"note nodes: of 3 nodes \[1, 2\] have not come after \d s; waiting", capsys.readouterr().out)


def test_a_first_node_that_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "MEETING_SECONDS", 0.3)
    (sentence,) = meet([1], 2)
    assert sentence.startswith("the first node is not reached at 127.0.0.1, port ")
    assert sentence.endswith("Connection refused")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_scanner_is_no_node_and_delays_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that closes at once, nor one that says nothing, or no whole line, and stays."""
    monkeypatch.setattr(meeting, "CONNECT_SECONDS", 30)
    port, start = free_port(), time.monotonic()
    outcome: list[int] = []

    def first() -> None:
        with meeting.Meeting(JobNode(2, 0, "127.0.0.1"), "127.0.0.1", port) as met:
            outcome.append(len(met.streams))

    thread = threading.Thread(target=first)
    thread.start()
    scanners = []
    for content in (b"", b"\x16\x03\x01", b"", b"GET /\r\n", b"[1]\n", b'{"node": "x"}\n', b'{"node": []}\n'):
        scanners.append(socket.socket())
        while scanners[-1].connect_ex(("127.0.0.1", port)):
            pass
        scanners[-1].sendall(content)
    scanners.pop(0).close()
    with meeting.Meeting(JobNode(2, 1, "127.0.0.1"), "127.0.0.1", port):
        thread.join()
    assert outcome == [1]
    assert time.monotonic() - start < meeting.CONNECT_SECONDS
    for scanner in scanners:
        scanner.close()


def test_a_silent_connection_keeps_no_neighbour_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    with meeting.Meeting(JobNode(1, 0, ""), "127.0.0.1", free_port()) as met, socket.socket() as silent:
        silent.connect(tuple(met.own_address))
        monkeypatch.setattr(meeting, "CONNECT_SECONDS", 2)
        assert not list(meeting.check_neighbour("n1", met.own_address))


@pytest.mark.parametrize(
    ("received", "says"),
    [(b"", "has left"), (b'{"failed": fal', "has left"), (b"?\n", "unreadable"), (b"7\n", "unr"), (b"{}\n", "'name'")],
)
def test_a_message_that_is_not_whole_or_not_one(received: bytes, says: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("rwb") as stream:
        with theirs:
            theirs.sendall(received)
        with pytest.raises(ConnectionError, match=f"another node.* {says}"):
            meeting.read_message(stream)["name"]


def test_a_message_of_many_packets_that_does_not_arrive() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close_early() -> None:
            connection = server.accept()[0]
            connection.recv(1000)
            connection.close()

        thread = threading.Thread(target=close_early)
        thread.start()
        ((severity, subject, sentence),) = meeting.check_neighbour("n2", list(server.getsockname()))
        thread.join()
    assert (severity, subject) == ("error", "neighbour")
    assert sentence.startswith("n2 is reached, and a message of many packets does not arrive, compare the MTUs: ")


@pytest.mark.parametrize(
    ("error", "hint"), [(TimeoutError("timed out"), True), (OSError(113, "x"), True), (OSError(111, "x"), False)]
)
def test_what_may_drop_packets(error: OSError, hint: bool) -> None:
    assert ("security group" in meeting.describe_connection_error(error)) == hint


@pytest.mark.parametrize(
    ("setting", "found"),
    [("", "libnccl-net.so"), ("ofi", "libnccl-net-ofi.so"), ("gone,ofi", "libnccl-net-ofi.so"), ("/a.so", "/a.so")],
)
def test_the_plugin_is_looked_for_as_nccl_does(setting: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_NET_PLUGIN", setting)
    for here, answer in ((found, "found"), ("libnccl-net-other.so", "not found")):
        monkeypatch.setattr(meeting, "has_library", lambda name, here=here: name == here)
        assert meeting.shared_facts("", [], "")["NCCL's network plugin"] == answer


def test_what_differs_is_said_with_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    rows: list[Message] = []
    for name, usable in (("n1", True), ("n2", True), ("n3", False)):
        write_device(tmp_path / name, "erdma_0", "erdma")
        write_device(tmp_path / name, "erdma_1", "erdma", usable=usable)
        present = [row for row in devices.read_devices(str(tmp_path / name)) if row.is_usable]
        rows.append({"name": name, "facts": meeting.shared_facts(str(tmp_path / name), present, "2.30.7")})
    assert rows[0]["facts"]["NCCL_ALGO"] == "Ring"
    assert "NCCL_DEBUG" not in rows[0]["facts"]
    rows[1]["facts"] = {**rows[1]["facts"], "NCCL": "2.28.9"}
    assert meeting.describe_differences(rows) == [
        "NCCL differs: 2.30.7 on n1, n3; 2.28.9 on n2",
        "number of usable RDMA devices differs: 2 on n1, n2; 1 on n3",
    ]
