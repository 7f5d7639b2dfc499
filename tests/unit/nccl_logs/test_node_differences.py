"""What NCCL's lines of several nodes say differently."""

import pytest

from rdma_images.facts.nccl_logs import load_wordings
from rdma_images.nccl_logs.verdict import Verdict, judge_lines


def verdict_on(**lines_by_host: tuple[str, ...]) -> Verdict:
    lines = [f"{host}:1:1 [0] NCCL INFO {line}" for host, lines in lines_by_host.items() for line in lines]
    return judge_lines(lines, load_wordings())


IB = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>"
INFINIBAND = "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"
LOADED = "NET/Plugin: Loaded net plugin NCCL RDMA Plugin v6 (v6)"
MISSING = "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation"


@pytest.mark.parametrize(
    ("first_line", "second_line", "difference"),
    [
        (
            "NCCL version 2.18.3+cuda12.2",
            "NCCL version 2.20.5+cuda12.4",
            "NCCL: 2.18.3+cuda12.2 on a; 2.20.5+cuda12.4 on b",
        ),
        (LOADED, MISSING, "the plugin: NCCL RDMA Plugin v6 on a; none on b"),
        (IB, INFINIBAND, "the number of adapters: 1 on b; 2 on a"),
        (IB, "NET/IB : No device found.", "the number of adapters: 0 on b; 2 on a"),
        ("Using network IB", "Using network Socket", "the network: IB on a; Socket on b"),
        ("cudaDriverVersion 12040", "cudaDriverVersion 12020", "CUDA's driver: 12020 on b; 12040 on a"),
    ],
)
def test_a_difference_is_reported_with_the_nodes_of_each_value(
    first_line: str, second_line: str, difference: str
) -> None:
    """NVIDIA/nccl 1634 and 2428 and horovod 639 are such jobs."""
    assert verdict_on(a=(first_line,), b=(second_line,)).sentence.startswith(f"the nodes differ in {difference}; ")
    assert "differ" not in verdict_on(a=(first_line,), b=(first_line,)).sentence


def test_the_rarest_value_comes_first() -> None:
    nodes = {f"n{number}": (IB,) for number in range(6)} | {"n9": (INFINIBAND,)}
    assert "1 on n9; 2 on n0, n1, n2 and 3 others" in verdict_on(**nodes).sentence


def test_a_node_that_says_both_is_no_difference() -> None:
    """A plugin is looked for by several names, and a second communicator may take another network."""
    assert "plugin" not in verdict_on(a=(LOADED,), b=(MISSING, LOADED)).sentence.partition(";")[0]
    assert "differ" not in verdict_on(a=("Using network IB",), b=("Using network IB", "Using network Socket")).sentence


def test_a_network_that_follows_from_the_plugin_is_not_reported_beside_it() -> None:
    sentence = verdict_on(a=(LOADED, "Using network IBext"), b=(MISSING, "Using network IB")).sentence
    assert "the plugin" in sentence
    assert "in the network" not in sentence


def test_a_difference_on_a_good_network_comes_last() -> None:
    channel = "Channel 00/0 : 3[3] -> 14[6] [send] via NET/IB/0/GDRDMA"
    result = verdict_on(a=("cudaDriverVersion 12040", IB, channel), b=("cudaDriverVersion 12020", IB, channel))
    assert (result.network, result.good) == ("InfiniBand", True)
    assert result.sentence.endswith("the nodes differ in CUDA's driver: 12020 on b; 12040 on a")
