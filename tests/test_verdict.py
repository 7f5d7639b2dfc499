"""The verdict on NCCL's logs: real ones, and lines as each version writes them."""

from pathlib import Path

import pytest

from rdma_images.errors import RdmaImagesError
from rdma_images.verdict import judged, logs, verdict

LOGS = Path(__file__).parent / "data" / "nccl-logs"
HEAD = "node:1:1 [0] NCCL INFO "


def log(*lines: str, nccl: str = "2.28.3") -> list[str]:
    return [f"{HEAD}NCCL version {nccl}+cuda13.0", *(line if "NCCL" in line else HEAD + line for line in lines)]


def judge(*lines: str, nccl: str = "2.28.3"):
    return judged(log(*lines, nccl=nccl), logs())


@pytest.mark.parametrize(
    ("name", "network", "good", "said"),
    [
        ("p2p-default", "one node", True, "48 P2P/CUMEM"),
        ("net-socket", "fallback", False, "no network plugin was found by the name libnccl-net.so"),
        ("plugin-name-missing", "fallback", False, "ofi libnccl-net-ofi.so"),
        ("plugin-none", "fallback", False, "NCCL_NET_PLUGIN=none"),
        ("tuner-missing", "fallback", False, "8 NET/Socket"),
        ("net-forced-unknown", "refused", False, "NCCL_NET names a network that is not there"),
    ],
)
def test_real_logs(name: str, network: str, good: bool, said: str) -> None:
    found = verdict(LOGS / f"{name}.log")
    assert (found.network, found.good, found.nccl) == (network, good, "2.28.9")
    assert said in found.sentence
    assert "\n" not in found.sentence


def test_a_healthy_node_announces_sockets_and_is_not_a_fallback() -> None:
    assert "Using network Socket" in (LOGS / "p2p-default.log").read_text()
    assert verdict(LOGS / "p2p-default.log").network == "one node"


def test_a_tuner_that_is_missing_is_a_note_and_no_cause() -> None:
    found = verdict(LOGS / "tuner-missing.log")
    assert found.notes == ("the tuner libnccl-ofi-tuner.so was asked for and not found",)
    assert "tuner" not in found.sentence


@pytest.mark.parametrize(
    ("lines", "network"),
    [
        (("NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)", "Using network Libfabric"), "efa"),
        (("Channel 00/0 : 3[3] -> 14[6] [send] via NET/Libfabric/3/GDRDMA",), "efa"),
        (
            (
                "NET/OFI Selected Provider is efa (found 1 nics)",
                "Channel 00 : 0[1a0] -> 1[1b0] [send] via NET/AWS Libfabric/0",
            ),
            "efa",
        ),
        (
            (
                "NET/IB : Using [0]erdma_0:1/RoCE [1]erdma_1:1/RoCE [RO]; OOB eth0:192.0.2.1<0>",
                "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
            ),
            "eRDMA",
        ),
        (
            (
                "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.1<0>",
                "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0",
            ),
            "InfiniBand",
        ),
        (
            (
                "NET/OFI Selected provider is tcp, fabric is 192.0.2.0/24 (found 1 nics)",
                "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0",
            ),
            "fallback",
        ),
        (
            (
                "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0",
                "Channel 01/0 : 0[0] -> 1[0] [send] via NET/Socket/0",
            ),
            "fallback",
        ),
        (("Channel 00/0 : 0[0] -> 1[0] [send] via NET/FasTrak/0",), "other"),
        (("Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct",), "one node"),
        (("Bootstrap : Using eth0:192.0.2.1<0>",), "unknown"),
    ],
)
def test_networks(lines: tuple[str, ...], network: str) -> None:
    found = judge(*lines)
    assert found.network == network
    assert found.good is (network in {"efa", "eRDMA", "InfiniBand", "other", "one node"})


SOCKET = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"


@pytest.mark.parametrize(
    ("nccl", "line", "said"),
    [
        ("2.18.3", "NET/Plugin : No plugin found, using internal implementation", "no network plugin was found"),
        (
            "2.20.5",
            "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libefa.so.1: cannot open shared object file",
            "libefa.so.1",
        ),
        ("2.21.5", "NET/Plugin: No plugin found (libnccl-net.so)", "no network plugin was found"),
        (
            "2.25.1",
            "NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.",
            "by the name libnccl-net.so",
        ),
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
        ("2.28.3", "NET/IB : No device found.", "no RDMA device is in the container"),
        ("2.28.3", "node:1:1 [0] NCCL WARN Call to ibv_create_qp failed with error Unknown error -12", "memlock"),
    ],
)
def test_why_it_fell_back(nccl: str, line: str, said: str) -> None:
    found = judge(line, SOCKET, nccl=nccl)
    assert found.network == "fallback"
    assert said in found.sentence


def test_a_wording_of_another_version_means_nothing() -> None:
    assert "does not say why" in judge("NET/Plugin: No plugin found (libnccl-net.so)", SOCKET, nccl="2.30.7").sentence


def test_a_line_that_is_normal_is_no_cause() -> None:
    found = judge("NET/Plugin: Failed to find ncclNetPlugin_v10 symbol.", SOCKET, nccl="2.26.2")
    assert found.causes == ()


def test_a_crash_on_erdma_is_told_only_of_the_versions_that_crash() -> None:
    crash = ["Caught signal 11 (Segmentation fault: address not mapped)"]
    assert "2.29.7 or later" in judged([*log(nccl="2.28.9"), *crash], logs()).sentence
    assert judged([*log(nccl="2.30.7"), *crash], logs()).network == "unknown"


def test_no_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with pytest.raises(RdmaImagesError, match="cannot be read"):
        verdict(path)
    path.write_bytes(b"\xff\xfe binary \x00")
    with pytest.raises(RdmaImagesError, match="NCCL_DEBUG=INFO"):
        verdict(path)
