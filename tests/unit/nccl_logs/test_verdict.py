"""The verdict on NCCL's logs: real ones, and lines as each version writes them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.facts.nccl_logs import load_log_patterns
from rdma_images.jobs.results import log_files
from rdma_images.jobs.results.run_results import judge_log
from rdma_images.nccl_logs.reader import LogReader
from rdma_images.nccl_logs.verdict import Verdict, judge_lines, judge_summary

LOGS = Path(__file__).parents[2] / "data" / "nccl-logs"
HEAD = "node:1:1 [0] NCCL INFO "


def log_lines(*lines: str, nccl: str = "2.28.3") -> list[str]:
    return [f"{HEAD}NCCL version {nccl}+cuda13.0", *(line if "NCCL" in line else HEAD + line for line in lines)]


def verdict_on(*lines: str, nccl: str = "2.28.3") -> Verdict:
    return judge_lines(log_lines(*lines, nccl=nccl), load_log_patterns())


@pytest.mark.parametrize(
    ("name", "network", "good", "expected"),
    [
        ("p2p-default", "one node", True, "48 P2P/CUMEM"),
        ("net-socket", "fallback", False, "no network plugin was found by the name libnccl-net.so"),
        ("plugin-name-missing", "fallback", False, "ofi libnccl-net-ofi.so"),
        ("plugin-none", "fallback", False, "NCCL_NET_PLUGIN=none"),
        ("tuner-missing", "fallback", False, "8 NET/Socket"),
        ("plugin-real-no-efa-tcp-provider", "fallback", False, "libfabric over tcp, not EFA"),
        ("plugin-real-no-efa-provider-forced", "refused", False, "NCCL did not start"),
        ("net-forced-unknown", "refused", False, "NCCL_NET names a network that is not there"),
        ("nccl-2.31.2-tcp-provider", "fallback", False, "libfabric over tcp, not EFA (8 NET/Libfabric)"),
        ("nccl-2.31.2-alltoall-device-3", "refused", False, "NCCL found no network that has it"),
        ("nccl-2.31.2-deepep-gin", "one node", False, "NCCL found no network that has it"),
        ("nccl-2.32.3-tcp-provider", "fallback", False, "libfabric over tcp, not EFA (8 NET/Libfabric)"),
        ("nccl-2.32.3-socket", "fallback", False, "no network plugin was found by the name libnccl-net.so"),
        ("nccl-2.32.3-one-rank", "one node", True, "no channel uses a network"),
        ("gpu-two-nodes", "fallback", False, "libfabric over tcp, not EFA (8 NET/Libfabric)"),
        ("gpu-two-nodes-plugin-1.20.0", "fallback", False, "libfabric over tcp, not EFA (8 NET/Libfabric)"),
        ("gpu-two-nodes-nccl-tests", "fallback", False, "libfabric over tcp, not EFA (8 NET/Libfabric)"),
        ("gpu-two-nodes-one-gpu", "fallback", False, "libfabric over tcp, not EFA (8 NET/Libfabric)"),
        ("fsdp-two-nodes", "fallback", False, "no network plugin was found by the name libnccl-net.so"),
        ("gpu-refusal", "refused", False, "NCCL_NET names a network that is not there"),
        ("gpu-refusal-missing", "fallback", False, "libfabric over tcp, not EFA (8 NET/Libfabric)"),
    ],
)
def test_real_logs(name: str, network: str, good: bool, expected: str) -> None:
    result = judge_log(LOGS / f"{name}.log")
    nccl = name.split("-")[1] if name.startswith("nccl-") else "2.28.9"
    assert (result.network, result.good, result.nccl) == (network, good, nccl)
    assert expected in result.sentence
    assert "\n" not in result.sentence


def test_a_tuner_that_is_missing_is_a_note_and_no_cause() -> None:
    result = judge_log(LOGS / "tuner-missing.log")
    assert result.notes == ("the tuner libnccl-ofi-tuner.so was asked for and not found",)
    assert "tuner" not in result.sentence


EFA = "NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)"
LIBFABRIC = "Channel 00/0 : 3[3] -> 14[6] [send] via NET/Libfabric/3/GDRDMA"
IB = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA"
ERDMA = "NET/IB : Using [0]erdma_0:1/RoCE [1]erdma_1:1/RoCE [RO]; OOB eth0:192.0.2.1<0>"
PEER = "Channel 00/0 : 1[1] -> 2[2] via P2P/CUMEM"
SEND = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/"
SOCKET = SEND + "Socket/0"
OFI_TCP = "NET/OFI Selected provider is tcp, fabric is 192.0.2.0/24 (found 1 nics)"
OF_TWO_NODES = "comm 0x1 rank 1 nRanks 16 nNodes 2 localRanks 8 localRank 1 MNNVL 0"


@pytest.mark.parametrize(
    ("lines", "network"),
    [
        ((EFA, "Using network Libfabric", LIBFABRIC), "efa"),
        ((EFA, "Channel 00/0 : 3[3] -> 14[6] [send] via NET/Libfabric/3(2)/GDRDMA/Shared"), "efa"),
        (
            (
                "NET/OFI Selected Provider is efa (found 1 nics)",
                "Channel 00 : 0[1a0] -> 1[1b0] [send] via NET/AWS Libfabric/0",
            ),
            "efa",
        ),
        ((EFA, "Using network OFI", "Channel 00/0 : 3[3] -> 14[6] [send] via NET/OFI/3(2)/GDRDMA"), "efa"),
        ((ERDMA, IB), "eRDMA"),
        (("NET/IB : Using [0]={[0] erdma_0:1/RoCE, [1] erdma_1:1/RoCE} [RO]; OOB eth0:192.0.2.1<0>", IB), "eRDMA"),
        ((ERDMA, IB.replace("NET/IB/", "NET/IBext_v10/")), "eRDMA"),
        (("NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.1<0>", SEND + "IB/0"), "InfiniBand"),
        (("Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct", "Channel 00 : 1[1] -> 0[0] via SHM/CE/CE"), "one node"),
        (("comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0", PEER), "one node"),
        (("comm 0x1 rank 0 nRanks 1 nNodes 1 localRanks 1 localRank 0", "Using network Socket"), "one node"),
    ],
)
def test_networks_that_are_good(lines: tuple[str, ...], network: str) -> None:
    result = verdict_on(*lines)
    assert (result.network, result.good, result.exit_code) == (network, True, 0)


@pytest.mark.parametrize(
    "lines",
    [
        (OFI_TCP, SEND + "Libfabric/0"),
        (LIBFABRIC, "Channel 01/0 : 0[0] -> 1[0] [send] via NET/Socket/0"),
        ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/FastSocket/0",),
        # A rank in the middle of its node: its own channels are no network's.
        ("Using network Socket", OF_TWO_NODES, PEER),
        # The channels of ranks without the fabric are in another log, or never came to be.
        (EFA, LIBFABRIC, "Using network Socket"),
        # A host that chose another provider than the rest, whichever came last.
        (OFI_TCP, EFA, LIBFABRIC),
        # Two ranks wrote one line.
        (EFA, f"{LIBFABRIC}{HEAD}Channel 01/0 : 0[0] -> 1[0] [send] via NET/Socket/0"),
    ],
)
def test_whatever_shows_tcp_is_a_fallback(lines: tuple[str, ...]) -> None:
    result = verdict_on(*lines)
    assert (result.network, result.good, result.exit_code) == ("fallback", False, 1)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("Bootstrap : Using eth0:192.0.2.1<0>",), "ends before NCCL had one"),
        ((EFA, "Using network Libfabric"), "no channel is in the log"),
        (("Using network Soc",), "NCCL announced Soc"),
        ((LIBFABRIC,), "no line says over what"),
        ((IB,), "no line says on what"),
        ((ERDMA, ERDMA.replace("erdma_1", "mlx5_1"), IB), "of more than one kind"),
        ((EFA, LIBFABRIC, ERDMA, IB), "more than one network"),
        (("Channel 00/0 : 0[0] -> 1[0] [send] via NET/FasTrak/0",), "FasTrak"),
        # Cut in the middle of a name.
        (("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Soc",), "Soc…"),
        ((EFA, LIBFABRIC, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Soc"), "Soc…"),
        # Not the log of all ranks, and perhaps not of one node.
        ((OF_TWO_NODES, PEER), "not of all ranks"),
        (("Using network Libfabric", OF_TWO_NODES, PEER), "not of all ranks"),
        ((PEER,), "not of all ranks"),
        (("Init START comm 0x1 rank 0 nranks 4", PEER, "Channel 00/0 : 2[2] -> 1[1] via P2P/IPC"), "not of all ranks"),
        (("comm 0x2 rank 0 nRanks 8 nNodes 1", "comm 0x1 rank 0 nranks 16 cudaDev 0 - Init START", PEER), "all ranks"),
    ],
)
def test_what_a_log_does_not_say_is_unknown(lines: tuple[str, ...], expected: str) -> None:
    result = verdict_on(*lines)
    assert (result.network, result.good, result.exit_code) == ("unknown", False, 3)
    assert expected in result.sentence


def test_a_line_that_was_cut_says_nothing_new_where_the_name_is_known() -> None:
    assert verdict_on(EFA, LIBFABRIC, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libf").network == "efa"


def coloured(line: str) -> str:
    return f"\x1b[32m{line.replace('NCCL INFO', 'NCCL' + chr(27) + '[0m ' + chr(27) + '[32mINFO')}\x1b[0m\x9b0m"


def in_json(line: str) -> str:
    return json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "2026-11-21T00:00:00Z"})


@pytest.mark.parametrize("wrap", [coloured, in_json, lambda line: in_json(coloured(line))])
@pytest.mark.parametrize(("name", "network"), [("net-socket", "fallback"), ("p2p-default", "one node")])
def test_a_log_is_read_as_job_runners_leave_it(wrap: Callable[[str], str], name: str, network: str) -> None:
    lines = (LOGS / f"{name}.log").read_text().splitlines()
    expected = judge_lines(lines, load_log_patterns())
    assert expected.network == network
    assert judge_lines(map(wrap, lines), load_log_patterns()) == expected
    assert verdict_on(*(wrap(HEAD + line) for line in ("Using network Socket",))).network == "fallback"


def test_nothing_of_a_log_moves_the_cursor_of_who_reads_the_verdict() -> None:
    result = verdict_on("NET/Plugin: Could not find: \x1b]0;title\x07\x1b[2Jlib\x9b1mx.so\x00", SOCKET)
    assert "by the name libx.so" in result.sentence
    assert result.sentence.isprintable()


@pytest.mark.parametrize("expected", ["Error 15 (Unreachable remote)", "RC: 103. Error: 15 (Unreachable remote)."])
def test_a_fabric_over_which_nothing_arrives_is_not_good(expected: str) -> None:
    result = verdict_on(EFA, LIBFABRIC, f"node:1:1 [0] NCCL WARN NET/OFI Request 0x1 completed with error. {expected}")
    assert (result.network, result.good, result.exit_code) == ("efa", False, 1)
    assert "the security group must let all of its own traffic in and out" in result.sentence


@pytest.mark.parametrize(
    ("nccl", "line", "expected"),
    [
        ("2.18.3", "NET/Plugin : No plugin found, using internal implementation", "no network plugin was found"),
        (
            "2.20.5",
            "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libefa.so.1: cannot open shared object file",
            "libefa.so.1",
        ),
        ("2.21.5", "NET/Plugin: No plugin found (libnccl-net.so)", "no network plugin was found"),
        ("2.25.1", "NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.", "by the name libnccl"),
        ("2.28.3", "NET/Plugin: Could not find: libnccl-net.so", "by the name libnccl-net.so"),
        (
            "2.22.3",
            "NET/Plugin: Failed to find ncclNetPlugin symbol (>= v5). ncclNetPlugin symbols v4 and lower are not "
            "supported.",
            "too old",
        ),
        ("2.27.3", "NET/Plugin: Failed to find ncclNetPlugin_v6 symbol.", "v6 or later"),
        ("2.30.7", "External network plugin libnccl-net.so is unsupported", "no interface that this NCCL knows"),
        ("2.28.3", "Failed to initialize NET plugin Libfabric", "failed to start"),
        (
            "2.28.3",
            "node:1:1 [0] nccl_net_ofi_create_plugin:1 NCCL WARN NET/OFI Unable to find a protocol that worked.",
            "no way to use",
        ),
        ("2.28.3", "NET/OFI No eligible providers were found", "no EFA device in the container"),
        (
            "2.18.3",
            "NET/OFI Couldn't set FI_OPT_EFA_SENDRECV_IN_ORDER_ALIGNED_128_BYTES. RC: -92, ERROR: Protocol not "
            "available",
            "older than the one that the plugin was built with",
        ),
        ("2.28.3", "NET/IB : No device found.", "found no InfiniBand, RoCE or eRDMA device"),
        ("2.28.3", "node:1:1 [0] NCCL WARN Call to ibv_create_qp failed with error Unknown error -12", "memlock"),
    ],
)
def test_why_it_fell_back(nccl: str, line: str, expected: str) -> None:
    result = verdict_on(line, SOCKET, nccl=nccl)
    assert result.network == "fallback"
    assert expected in result.sentence


ROCE = "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:192.0.2.1<0>"
WARN = "node:1:1 [0] transport/net_ib.cc:1 NCCL WARN "


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129", "did not answer over RDMA"),
        (
            "NET/IB : Got completion from peer 192.0.2.2<55921> with status=12 opcode=1 len=0 vendor err 129 (Send) "
            "localGid ::ffff:192.0.2.1 remoteGids::ffff:192.0.2.2",
            "did not answer over RDMA",
        ),
        (
            "NET/OFI Request 0x7f9c completed with error. RC: 21. Error: unknown error. Completed length: 0, "
            "Request: { dev: 0 }",
            "a transfer over libfabric ended with error 21",
        ),
        (
            "NET/OFI Request 0x7f9c completed with error. RC: 107. Error: 4126 (Unresponsive receiver (reachable by "
            "EFA device but handshake failed)). Completed length: 0",
            "the security group must let all of its own traffic in and out",
        ),
        (
            "NET/IB: Got completion from peer 192.0.2.2<33397> with status=IBV_WC_RETRY_EXC_ERR(12) "
            "opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send hca mlx5_0",
            "did not answer over RDMA",
        ),
        (
            "NET/IB : Got completion from peer fe80::1%ib0<33397> with error 4, opcode 32611, len 32611, vendor err 81 "
            "(Send)",
            "GPUDirect RDMA is broken",
        ),
        (
            "NET/IB : Got completion from peer 192.0.2.2<54891> with error 5, opcode 0, len 0, vendor err 249",
            "status 5",
        ),
        ("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "set memlock to unlimited"),
        ("Call to ibv_create_cq failed with error Cannot allocate memory", "set memlock to unlimited"),
        ("Call to ibv_modify_qp failed with error Network is unreachable", "no route leads"),
        ("Call to ibv_modify_qp failed with error Network is unreachable errno 101", "no route leads"),
        ("Call to ibv_modify_qp failed with error No such device", "leave it out, as NCCL_IB_HCA=^mlx5_3"),
        (
            "Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0:1, curr state INIT, next state RTR, "
            "local GID index 3, local GID N/A, remote GID ::ffff:192.0.2.2",
            "NCCL_IB_GID_INDEX names no usable GID",
        ),
        ("Call to ibv_modify_qp failed with error Invalid argument", "their GIDs do not fit"),
        ("Call to ibv_modify_qp failed with error Connection timed out errno 110", "NCCL_CROSS_NIC=0"),
    ],
)
def test_no_log_is_good_after_a_line_that_stops_a_job(line: str, reason: str) -> None:
    result = verdict_on(ROCE, "Using network IB", IB, WARN + line)
    assert (result.network, result.good, result.exit_code) == ("InfiniBand", False, 1)
    assert reason in result.sentence
    for lines in ((), (IB,), (PEER,)):
        assert verdict_on(*lines, WARN + line).exit_code == 1


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ("[0]mlx5_3:1/IB [1]mlx5_0:1/IB [2]mlx5_2:1/RoCE ", "NCCL took ports of InfiniBand and of Ethernet"),
        ("[0]mlx5_2:1/RoCE [1]mlx5_0:1/IB [RO]", "NCCL took ports of InfiniBand and of Ethernet"),
        ("[0]mlx5_3:1/IB [1]mlx5_0:1/IB ", "their GIDs do not fit"),
        ("[0]mlx5_2:1/RoCE ", "their GIDs do not fit"),
    ],
)
def test_ports_of_two_kinds_of_networks_that_do_not_connect(devices: str, reason: str) -> None:
    """As in NCCL's issue 302, where no index of a GID was set."""
    line = WARN + "Call to ibv_modify_qp failed with error Invalid argument"
    result = verdict_on(f"NET/IB : Using {devices}; OOB eth0:192.0.2.1<0>", "Using network IB", IB, line)
    assert reason in result.sentence
    assert "names no usable GID" not in result.sentence


def test_a_connection_that_is_tried_again_stops_nothing() -> None:
    retry = (
        "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, "
        "local GID index 3, local GID ::1, remote GID ::2, retrying 1/35 after 100 msec of sleep"
    )
    assert verdict_on(ROCE, IB, retry).good


def test_gpudirect_that_is_off_over_verbs_is_not_good() -> None:
    result = verdict_on(ROCE, "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", IB.replace("/GDRDMA", ""))
    assert (result.network, result.exit_code) == ("InfiniBand", 1)
    assert "GPUDirect RDMA is off for mlx5_0" in result.sentence
    assert "NCCL before 2.23.4" in result.sentence


@pytest.mark.parametrize(
    "ending", ["Ignoring due to NCCL_IGNORE_NET_MISMATCH.", "Set NCCL_IGNORE_NET_MISMATCH=1 to continue."]
)
def test_nodes_with_different_numbers_of_adapters_are_not_good(ending: str) -> None:
    line = (
        f"node:1:1 [0] init.cc:1 NCCL INFO Detected mixed local Net device counts across ranks (min 1, max 2). {ending}"
    )
    result = verdict_on(ROCE, IB, line, nccl="2.30.7")
    assert (result.network, result.exit_code) == ("InfiniBand", 1)
    assert "different numbers of usable adapters (1 and 2)" in result.sentence


@pytest.mark.parametrize(
    ("nccl", "line", "reason"),
    [
        (
            "2.18.5",
            "NET/Plugin : dlerror=/opt/amazon/efa/lib/libfabric.so.1: version `FABRIC_1.7' not found (required by "
            "/env/lib/libnccl-net.so) No plugin found (libnccl-net.so), using internal implementation",
            "/env/lib/libnccl-net.so needs FABRIC_1.7, and /opt/amazon/efa/lib/libfabric.so.1 does not have it",
        ),
        (
            "2.29.3",
            "NET/Plugin: libnccl-net-ofi.so: /opt/rdma-core/build/lib/libibverbs.so.1: version `IBVERBS_PRIVATE_34' "
            "not found (required by /usr/lib/x86_64-linux-gnu/libefa.so.1)",
            "libefa.so.1 needs IBVERBS_PRIVATE_34",
        ),
        ("2.27.3", WARN + "NET/OFI Unexpected group size 0", "none of them beside a GPU"),
        (
            "2.27.7",
            WARN + "NET/OFI OFI fi_getinfo() call failed: No data available",
            "no EFA device in the container: ask for vpc.amazonaws.com/efa",
        ),
        ("2.21.5", "Failed to open libibverbs.so[.1]", "libibverbs.so.1 is not in the image"),
        ("2.32.3", "Count not open libibverbs.so.1", "libibverbs.so.1 is not in the image"),
    ],
)
def test_the_reason_behind_the_others_is_the_only_one(nccl: str, line: str, reason: str) -> None:
    also = ("NET/IB : No device found.", "NET/Plugin: Could not find: ofi")
    result = verdict_on(line, also[0], SOCKET, nccl=nccl)
    assert result.network == "fallback"
    assert reason in result.sentence
    assert "own RDMA found no" not in result.sentence
    if "required by" in line:
        assert verdict_on(line, *also, SOCKET, nccl=nccl).causes == result.causes


def test_the_development_name_of_libibverbs_is_not_needed() -> None:
    assert verdict_on("Count not open libibverbs.so", SOCKET, nccl="2.32.3").causes == ()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Bootstrap : no socket interface found", "no network interface to start with"),
        (f"{WARN}Bootstrap : no socket interface found", "no network interface to start with"),
        ("ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)", "to start"),
        (
            f"{WARN}socketStartConnect: Connect to 192.0.2.2<45763> failed : Connection refused",
            "does not reach 192.0.2.2",
        ),
        (
            f"{WARN}socketPollConnect: Connect to 192.0.2.4<56849> returned 113(No route to host) errno 115(Operation "
            "now in progress)",
            "does not reach 192.0.2.4",
        ),
        (
            f"{WARN}socketStartConnect: Connect to 172.17.0.2<38847> failed : Software caused connection abort",
            "an address inside a node",
        ),
        (
            f"{WARN}socketPollConnect: connect to 169.254.170.23<4242> returned Connection refused, exceeded error "
            "retry count after 35 attempts",
            "an address inside a node",
        ),
    ],
)
def test_a_job_that_cannot_start_is_refused(line: str, reason: str) -> None:
    result = judge_lines([*log_lines("Bootstrap : Using eth0:192.0.2.1<0>"), "Last error:", line], load_log_patterns())
    assert (result.network, result.exit_code) == ("refused", 1)
    assert reason in result.sentence


def test_a_job_that_tries_to_reach_an_address_inside_a_node_says_so() -> None:
    retry = (
        "socketPollConnect: connect to 169.254.170.23<4242> returned Connection refused, retrying (1/34) after sleep"
    )
    result = verdict_on("Bootstrap: Using pod-id-link0:169.254.170.23<0>", retry)
    assert result.network == "unknown"
    assert "starts over the interface pod-id-link0" in result.sentence
    assert "tries to reach 169.254.170.23" in result.sentence


def test_a_wording_of_another_version_means_nothing() -> None:
    assert (
        "does not say why" in verdict_on("NET/Plugin: No plugin found (libnccl-net.so)", SOCKET, nccl="2.30.7").sentence
    )


def test_a_line_that_is_normal_is_no_cause() -> None:
    result = verdict_on("NET/Plugin: Failed to find ncclNetPlugin_v10 symbol.", SOCKET, nccl="2.26.2")
    assert result.causes == ()


CRASH = "Caught signal 11 (Segmentation fault: address not mapped)"


def test_a_crash_is_erdmas_only_in_versions_that_crash_and_where_an_erdma_device_is() -> None:
    assert "2.29.7 or later" in judge_lines([*log_lines(ERDMA, nccl="2.28.9"), CRASH], load_log_patterns()).sentence
    for lines, nccl in (((ERDMA,), "2.30.7"), ((EFA,), "2.28.9"), ((), "2.28.9")):
        result = judge_lines([*log_lines(*lines, nccl=nccl), CRASH], load_log_patterns())
        assert (result.network, "eRDMA" in result.sentence) == ("unknown", False)


def test_a_log_without_a_line_of_nccls_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for data in (b"", b"\xff binary \x00", b"epoch 1\n"):
        path.write_bytes(data)
        result = judge_log(path)
        assert (result.network, result.exit_code) == ("unknown", 3)
        assert "NCCL_DEBUG=INFO" in result.sentence
    path.write_text("".join(f"{HEAD}{line}\n" for line in ("Bootstrap : Using eth0", "NET/IB : No device found.")))
    assert "ends before NCCL had one" in judge_log(path).sentence


@pytest.mark.parametrize(
    "line",
    [
        f"NCCL version {'9' * 5000}.1",
        f"{HEAD}comm 0x1 rank 1 nRanks {'9' * 5000} nNodes {'9' * 5000}",
        f"{HEAD}Channel 00/0 : {'9' * 5000}[0] -> 1[1] via P2P/IPC",
        json.dumps({"log": f"{HEAD}Channel 00/0 : 0[0] -> 1[1] via NET/\ud800/0"}),
    ],
)
def test_what_no_nccl_writes_is_a_sentence_like_others(line: str) -> None:
    result = judge_lines([line], load_log_patterns())
    assert result.network == "unknown"
    assert result.sentence.isprintable()


def test_a_device_that_cannot_be_opened_is_not_one_that_is_not_there() -> None:
    result = verdict_on(
        f"{HEAD}NET/IB : Unable to open device mlx5_bond_0",
        f"{HEAD}NET/IB : No device found.",
        f"{HEAD}Using network Socket",
    )
    assert result.network == "fallback"
    assert "mlx5_bond_0 is in /sys/class/infiniband and cannot be opened" in result.sentence
    assert "found no InfiniBand" not in result.sentence


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Couldn't open AV. RC: -22, ERROR: Invalid argument", "AV: Invalid argument"),
        (
            "Couldn't open a fabric access domain. RC: -12, ERROR: Cannot allocate memory",
            "fabric access domain: Cannot",
        ),
        (
            "Couldn't open a fabric provider using ofiutils helper. RC: -22, ERROR: Invalid argument",
            "fabric provider: Inv",
        ),
        ("Couldn't enable endpoint. RC: -12, ERROR: Cannot allocate memory", "endpoint: Cannot allocate memory"),
    ],
)
def test_what_libfabric_refuses_the_plugin_is_named(line: str, name: str) -> None:
    result = verdict_on(f"{HEAD}NET/OFI Initializing aws-ofi-nccl 1.21.1", f"{HEAD}NET/OFI {line}")
    assert f"libfabric gives it no {name}" in result.sentence


def test_the_logs_of_many_ranks_give_one_verdict_wherever_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = judge_log(LOGS / "net-socket.log")
    monkeypatch.setattr("rdma_images.jobs.results.log_files.READ_BYTES", 7)
    assert judge_log(LOGS / "net-socket.log") == expected
    reader = LogReader(load_log_patterns())
    for _, text in [*log_files.pieces(LOGS / "net-socket.log")] * 2:
        reader.read(text)
    result = judge_summary(reader.summary(), load_log_patterns())
    assert (result.network, result.causes) == (expected.network, expected.causes)
    assert result.channels == {name: 2 * count for name, count in expected.channels.items()}


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_lines_end_as_terminals_and_other_systems_end_them(tmp_path: Path, line_end: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(line_end.join(log_lines(EFA, LIBFABRIC)).encode())
    assert judge_log(path).network == "efa"


@pytest.mark.parametrize(("log", "code"), [("p2p-default.log", 0), ("net-socket.log", 1), ("README.md", 3)])
def test_the_exit_code_says_whether_it_is_known(log: str, code: int) -> None:
    words = [sys.executable, "-m", "invoke", "verdict", str(LOGS / log)]
    completed = subprocess.run(words, cwd=paths.PROJECT, capture_output=True, text=True)
    assert completed.returncode == code
    assert len(completed.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("lines", "network", "channels"),
    [
        (
            ("NET/IB : Using [0]mlx5_0:1/IB ; OOB e:1<0>", "Ring 00 : 3[b01] -> 4[201] [send] via NET/IB/0"),
            "InfiniBand",
            "NET/IB",
        ),
        (
            ("NET/IB: [0] mlx4_0:2/RoCE", "Using internal Network IB", "Ring 00 : 0 -> 1 via NET/IB/0"),
            "InfiniBand",
            "NET/IB",
        ),
        (("Using internal Network Socket", "Ring 00 : 3 -> 0 [receive] via NET/Socket/0"), "fallback", "NET/Socket"),
        (
            (
                "rank 0 nranks 2",
                "Ring 00 : 0[0] -> 1[1] via P2P/IPC",
                "Ring 00 : 1[1] -> 0[0] via direct shared memory",
            ),
            "one node",
            "P2P/IPC",
        ),
    ],
)
def test_logs_of_nccl_before_2_7(lines: tuple[str, ...], network: str, channels: str) -> None:
    """Before 2.7 NCCL wrote of rings; horovod 476, 1122 and 1651 have such lines."""
    result = judge_lines([HEAD + line for line in lines], load_log_patterns())
    assert (result.network, channels in result.channels) == (network, True)


PORT_ERROR = "n1:1:2 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (PORT_ERROR, "the link of an InfiniBand or RoCE adapter went down"),
        (WARN + "NET/IB : Got async event : port error", "the link of an InfiniBand or RoCE adapter went down"),
        (WARN + "NET/IB : Got async event : local catastrophic error", "an InfiniBand or RoCE adapter failed"),
        (
            WARN + "NET/IB : mlx5_0:1 async fatal event: local catastrophic error",
            "an InfiniBand or RoCE adapter failed",
        ),
        (WARN + "NET/IB : mlx5_0:1 async fatal event on QP (0x7): QP fatal", "gave a connection up (QP: QP fatal)"),
    ],
)
def test_an_event_of_an_adapter_is_reported(line: str, reason: str) -> None:
    assert reason in verdict_on(line).sentence
    assert reason in verdict_on("Using network IB", line).sentence


def test_a_transfer_that_failed_is_reported_as_one_of_a_job_that_ran() -> None:
    unanswered = WARN + "NET/IB : Got completion from peer 10.0.0.1<1> with error 12, opcode 0, len 0, vendor err 129"
    sentence = "the transport failed while the job ran: a peer did not answer over RDMA (status 12)"
    assert verdict_on(unanswered).sentence.startswith(sentence)
    after_channels = [*(LOGS / "gpu-two-nodes.log").read_text().splitlines(), unanswered]
    result = judge_lines(after_channels, load_log_patterns())
    assert (result.network, result.exit_code) == ("fallback", 1)
    assert f"not EFA (8 NET/Libfabric); {sentence}" in result.sentence


def test_a_link_that_went_down_is_why_a_transfer_had_no_answer() -> None:
    """As in NVIDIA/nccl 905. A link that comes back leaves the job slower, and does not end it."""
    unanswered = WARN + "NET/IB : Got completion from peer 10.0.0.1<1> with error 12, opcode 0, len 0, vendor err 129"
    ended = verdict_on(PORT_ERROR, unanswered)
    assert ended.network == "refused"
    assert "went down" in ended.sentence
    assert "did not answer" not in ended.sentence
    device = "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"
    going_on = verdict_on(device, "Channel 00/0 : 3[3] -> 14[6] [send] via NET/IB/0/GDRDMA", PORT_ERROR)
    assert (going_on.network, going_on.good) == ("InfiniBand", False)


def test_a_warning_that_no_row_knows_is_quoted_beside_a_cause_that_ends_no_job() -> None:
    warnings = (WARN + "The moon is full", WARN + "The sun is up")
    result = verdict_on("NET/IB : No device found.", *warnings)
    assert 'not looked into further: NCCL\'s first warning "The moon is full"' in result.sentence
    explained = verdict_on("NET/IB : No device found.", WARN + "Failed to open libibverbs.so[.1]")
    assert "not looked into" not in explained.sentence


TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 12, in <module>',
    "    main()",
    "ValueError: batch size is 0",
)


def test_the_end_of_the_first_traceback_is_quoted_and_not_judged() -> None:
    end = '; quoted, and not looked into further: the first traceback\'s last line "ValueError: batch size is 0"'
    result = judge_lines([*log_lines(EFA, LIBFABRIC), *TRACEBACK, *TRACEBACK[:3], "KeyError: 3"], load_log_patterns())
    assert (result.network, result.exit_code) == ("efa", 0)
    assert result.sentence.endswith(end)
    assert judge_lines(TRACEBACK, load_log_patterns()).sentence.startswith("no line of NCCL's is in the log")
    assert judge_lines(TRACEBACK, load_log_patterns()).exit_code == 3


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "2026-11-22T06:00:0{}.1Z ", "{}: ", "node-{}: [default{}]:"])
def test_of_ranks_that_write_at_once_the_first_ones_traceback_is_quoted(prefix: str) -> None:
    is_time = prefix.startswith("20")
    lines = [
        (prefix if is_time or rank == 1 else "other: ").format(rank, rank) + line
        for line in TRACEBACK
        for rank in ((1,) if is_time else (1, 2))
    ]
    assert 'last line "ValueError: batch size is 0"' in judge_lines(lines, load_log_patterns()).sentence


def test_every_part_of_a_line_that_wraps_several_is_read() -> None:
    wrapped = json.dumps({"a": f"step 1\r{HEAD}{EFA}", "b": f"step 2\n{HEAD}{LIBFABRIC}"})
    assert judge_lines([wrapped], load_log_patterns()).network == "efa"
    assert judge_lines([f"50%\r{HEAD}{EFA}\r51%\r{HEAD}{LIBFABRIC}"], load_log_patterns()).network == "efa"


def test_ranks_without_a_line_are_counted() -> None:
    def rank(number: int) -> str:
        return OF_TWO_NODES.replace("rank 1 ", f"rank {number} ", 1)

    one = verdict_on(EFA, rank(0), LIBFABRIC)
    assert (one.exit_code, one.ranks_logged, one.ranks) == (0, 1, 16)
    assert one.sentence_with_rank_count.endswith("; 1 of 16 ranks has lines in the log")
    assert "; 2 of 16 ranks have lines" in verdict_on(EFA, rank(0), rank(9), LIBFABRIC).sentence_with_rank_count
    assert "ranks" not in verdict_on(EFA, *map(rank, range(16)), LIBFABRIC).sentence_with_rank_count


NO_RC = "EFA has SRD and no RC"
UCX = "UCX copies in software over"


@pytest.mark.parametrize(
    ("line", "network", "reason"),
    [
        (
            "E0509 10:00:07.1 711 rdma_endpoint.cpp:76] Failed to create QP: Operation not supported [95]",
            "refused",
            NO_RC,
        ),
        ("failed to create extended queue pair (QP): Operation not supported", "refused", NO_RC),
        ("failed to create queue pair (QP): Operation not supported (os error 95)", "refused", NO_RC),
        (WARN + "Call to ibv_create_qp failed with error Operation not supported", "refused", NO_RC),
        (
            "libfabric:311:1776700000:efa:ep_data:efa_rma_post_write():214<warn> EFA direct requires FI_MR_LOCAL but "
            "application does not provide a valid desc",
            "refused",
            "refused a transfer over efa-direct",
        ),
        (
            "W20250825 util_rdma.h:547] NET/IB: read failed in ncclIbRoceGetVersionNum: Invalid argument",
            "refused",
            "2.26",
        ),
        (WARN + "NET/IB: read failed in ncclIbRoceGetVersionNum: Invalid argument", "refused", "take NCCL 2.26"),
        ("|       0..inf | software emulation                | srd/rdmap135s0:1 |", "fallback", f"{UCX} srd"),
        (
            "[1760500000.223] [pod-a:7:0] ucp_worker.c:1888 UCX  INFO    ucp_context_0 inter-node cfg#3 "
            "rma_am(tcp/eth0)  amo_am(tcp/eth0)  am(tcp/eth0)",
            "fallback",
            f"{UCX} tcp",
        ),
        ("libfabric:1:2:efa:cq:efa_cq():3<warn> err: Unresponsive remote: x", "refused", "does not answer"),
        (WARN + "Call to ibv_reg_mr_iova2 failed with error Bad address", "refused", "load nvidia_peermem"),
        (WARN + "Error: network AWS not found.", "refused", "NCCL_NET=AWS names a network"),
        (
            "rdma-preflight node-1 error devices: the kernel has no efa device",
            "refused",
            "the preflight of node-1 ended the job: devices: the kernel has no efa device",
        ),
    ],
)
def test_why_another_program_than_nccl_does_not_use_the_fabric(line: str, network: str, reason: str) -> None:
    result = judge_lines([line], load_log_patterns())
    assert (result.network, result.exit_code) == (network, 1)
    assert reason in result.sentence
    assert "memlock" not in result.sentence
    beside = judge_lines([*log_lines(EFA, LIBFABRIC), line], load_log_patterns())
    assert (beside.network, beside.exit_code) == ("efa", 1)
