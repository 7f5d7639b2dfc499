"""Faults of released versions: which versions have them, and beside what."""

import pytest

from rdma_images import facts
from rdma_images.facts.faults import Fault

TUNER = "/opt/aws-ofi-nccl/install/lib/libnccl-ofi-tuner.so"
NONBLOCKING, FLUSH = "TORCH_NCCL_USE_COMM_NONBLOCKING", "NCCL_GDRCOPY_FLUSH_ENABLE"
VLLM_WINDOWS = "VLLM_USE_NCCL_SYMM_MEM"
OF_THE_PLUGIN = """
1.1.2 1.1.3 1.4.0 1.7.0 1.7.2 1.7.3 1.7.4 1.8.0 1.8.1 1.9.0 1.9.1 1.9.2 1.10.0 1.11.1 1.12.0 1.13.0 1.13.1 1.13.2 1.14.0
1.14.2 1.15.0 1.16.0 1.16.1 1.16.2 1.16.3 1.17.0 1.17.1 1.17.2 1.18.0 1.19.1 1.19.2 1.20.0 1.21.0 1.21.1
"""


@pytest.mark.parametrize(
    ("installer", "plugin", "on", "expected"),
    [
        ("1.48.0", "1.20.0", "aarch64", ["on GB200"]),
        ("1.48.0", "1.20.0", "x86_64", []),
        ("1.49.0", "1.20.0", "aarch64", []),
        ("1.49.0", "1.21.0", "x86_64", ["GIN goes"]),
        ("1.50.0", "1.21.1", "aarch64", []),
        ("1.49.0", "", "x86_64", []),  # a plugin from git, or of another project
    ],
)
def test_what_an_installer_lacks(
    all_facts: facts.Facts, installer: str, plugin: str, on: str, expected: list[str]
) -> None:
    rows = [row for row in all_facts.faults.faults if row.component == "efa-installer"]
    versions = {"nccl": "2.30.7", "aws-ofi-nccl": plugin}
    kernel = {"NCCL_GIN_TYPE": "5"}
    assert [
        row.why[:8] for row in rows if row.explanation(versions | {"efa-installer": installer}, on, kernel)
    ] == expected
    assert all("GIN" not in row.explanation(versions | {"efa-installer": installer}, on, {}) for row in rows)


def test_a_variable_avoids_what_an_installer_lacks(all_facts: facts.Facts) -> None:
    (row,) = [row for row in all_facts.faults.faults if row.unless and row.component == "efa-installer"]
    versions = {"efa-installer": "1.28.0", "nccl": "2.19.3"}
    explanations = [row.explanation(versions, "", {"FI_EFA_SET_CUDA_SYNC_MEMOPS": value}) for value in ("", "1", "0")]
    assert [bool(text) for text in explanations] == [True, True, False]


@pytest.mark.parametrize(
    ("plugin", "other_versions", "environment", "words"),
    [
        (["1.7.0", "1.7.2"], {}, {}, "LL128 off"),
        (["1.8.0"], {}, {}, "connects again"),
        (["1.9.0", "1.9.1"], {"nccl": "2.20.5"}, {"NCCL_TUNER_PLUGIN": TUNER}, "cannot use its tuner"),
        ([], {"nccl": "2.20.5"}, {"NCCL_TUNER_PLUGIN": ""}, "cannot use its tuner"),
        ([], {"nccl": "2.21.5"}, {"NCCL_TUNER_PLUGIN": TUNER}, "cannot use its tuner"),
        (["1.16.0", "1.16.1", "1.16.2", "1.16.3"], {"nccl": "2.20.5"}, {}, "refuses the protocol"),
        (
            ["1.9.2", "1.10.0", "1.11.1", "1.12.0", "1.13.0", "1.13.1", "1.13.2", "1.14.0", "1.14.2", "1.15.0"],
            {"nccl": "2.19.3"},
            {"NCCL_TUNER_PLUGIN": TUNER},
            "refuses the plugin's protocol",
        ),
        ([], {"nccl": "2.19.3"}, {}, "refuses the plugin's protocol"),
        ([], {"nccl": "2.21.5"}, {}, "refuses the protocol"),
        ([], {"nccl": "2.18.6"}, {}, "refuses the protocol"),
        (["1.10.0"], {}, {}, "segmentation"),
        (["1.13.0", "1.13.1"], {}, {}, "small all-reduces"),
        (["1.19.1"], {}, {"OFI_NCCL_EAGER_MAX_SIZE": "-1"}, "several messages at once"),
        ([], {}, {"OFI_NCCL_EAGER_MAX_SIZE": "8192"}, "several messages at once"),
        (["1.1.2"], {"nccl": "2.9.6"}, {}, "find each other"),
        ([], {"nccl": "2.8.4"}, {}, "find each other"),
        (["1.1.2", "1.1.3"], {}, {}, "flushes"),
        (["1.1.2", "1.1.3", "1.4.0", "1.7.0", "1.7.2", "1.7.3"], {}, {}, "GPUDirect RDMA does not start"),
        (["1.7.0"], {}, {}, "ever more memory"),
        (["1.7.0", "1.7.2"], {}, {}, "repeat the copy"),
        (["1.7.0", "1.7.2"], {"nccl": "2.18.5"}, {}, "works with this NCCL"),
        ([], {"nccl": "2.18.3"}, {}, "works with this NCCL"),
        ([], {"nccl": "2.18.5"}, {"NCCL_NVLS_ENABLE": "1"}, "works with this NCCL"),
        (["1.7.3", "1.7.4"], {}, {}, "in torch's own library"),
        ([], {}, {"NCCL_NVLS_ENABLE": "1"}, "in torch's own library"),
        (
            ["1.7.0", "1.7.2", "1.7.3", "1.7.4"],
            {"libfabric": "1.17.1"},
            {},
            "with NCCL 2.23.4 and libfabric 1.17.1: compiled with a newer",
        ),
        ([], {"libfabric": "1.18.0"}, {}, "compiled with a newer"),
        ([], {}, {}, "compiled with a newer"),
        (["1.7.0", "1.7.2", "1.7.3", "1.7.4", "1.8.0"], {}, {}, "each operation that failed"),
        (["1.7.0", "1.7.2", "1.7.3", "1.7.4", "1.8.0", "1.8.1"], {}, {}, "4,096"),
        (["1.8.0", "1.8.1", "1.9.0", "1.9.1"], {"nccl": "2.19.3"}, {}, "handle for the device"),
        ([], {"nccl": "2.18.6"}, {}, "handle for the device"),
        (["1.9.0", "1.9.1"], {"nccl": "2.20.3"}, {}, "that the user registers are slower"),
        ([], {"nccl": "2.19.4"}, {}, "that the user registers are slower"),
        (["1.10.0"], {"efa-installer": "1.35.0"}, {}, "with this installer's driver"),
        (["1.12.0"], {"efa-installer": "1.36.0"}, {}, "with the driver of this installer"),
        ([], {"efa-installer": "1.34.0"}, {}, "sorts EFA"),
        (["1.9.0"], {}, {}, "lacks headers"),
        (["1.10.0", "1.11.1", "1.12.0"], {}, {"OFI_NCCL_ENDPOINT_PER_COMM": "1"}, "crashes with an endpoint"),
        (["1.10.0", "1.11.1", "1.12.0"], {}, {}, "of one page"),
        ([], {}, {"OFI_NCCL_MR_CACHE_DISABLE": "1"}, "of one page"),
        (
            ["1.14.0", "1.14.2", "1.15.0", "1.16.0", "1.16.1", "1.16.2", "1.16.3", "1.17.0", "1.17.1", "1.17.2"],
            {},
            {},
            "each other's locks",
        ),
        (["1.16.0", "1.16.1", "1.16.2", "1.16.3", "1.17.0", "1.17.1", "1.17.2"], {}, {}, "threads that abort"),
        (["1.14.0", "1.14.2", "1.15.0"], {}, {"OFI_NCCL_ENDPOINT_PER_COMM": "1"}, "posts no receives"),
        ([], {}, {"OFI_NCCL_ENDPOINT_PER_COMM": "0"}, "endpoint"),
        (
            ["1.10.0", "1.11.1", "1.12.0", "1.13.0", "1.13.1", "1.13.2"],
            {},
            {"NCCL_TUNER_PLUGIN": TUNER},
            "between two nodes",
        ),
        ([], {}, {}, "between two nodes"),
        (["1.13.0", "1.13.1"], {}, {"NCCL_TUNER_PLUGIN": TUNER}, "wrong algorithm"),
        ([], {}, {}, "wrong algorithm"),
        (
            ["1.11.1", "1.12.0", "1.13.0", "1.13.1", "1.13.2", "1.14.0", "1.14.2", "1.15.0", "1.16.0"],
            {},
            {},
            "speed of PCI",
        ),
        (["1.14.0", "1.14.2"], {"libfabric": "2.1.0amzn2.0"}, {}, "1,024"),
        ([], {"libfabric": "1.22.0amzn4.0"}, {}, "1,024"),
        ([], {"libfabric": "2.3.0"}, {}, "1,024"),
        (["1.14.0", "1.14.2", "1.15.0", "1.16.0", "1.16.1", "1.16.2", "1.16.3"], {}, {}, "own lock"),
        (["1.14.2", "1.15.0", "1.16.0", "1.16.1", "1.16.2", "1.16.3", "1.17.0", "1.17.1"], {}, {}, "as g5"),
        (["1.18.0"], {}, {}, "connection that closes"),
        (
            ["1.16.0", "1.16.1", "1.16.2", "1.16.3", "1.17.0", "1.17.1", "1.17.2", "1.18.0", "1.19.1", "1.19.2"],
            {},
            {},
            "lost its EFA",
        ),
        (["1.17.0", "1.17.1", "1.17.2", "1.18.0", "1.19.1", "1.19.2", "1.20.0"], {}, {}, "CUDA graph"),
    ],
)
def test_what_release_notes_say_was_wrong(
    all_facts: facts.Facts, plugin: list[str], other_versions: dict[str, str], environment: dict[str, str], words: str
) -> None:
    """Of all these releases it is so of those named alone."""
    releases = OF_THE_PLUGIN.split()
    rows = [row for row in all_facts.faults.faults if row.component == "aws-ofi-nccl"]
    with_all = {"nccl": "2.23.4", **other_versions}
    explanations = {
        v: [row.explanation(with_all | {"aws-ofi-nccl": v}, "x86_64", environment) for row in rows] for v in releases
    }
    assert [v for v in releases if any(words in text for text in explanations[v])] == plugin


def versions_with_fault(
    all_facts: facts.Facts,
    component: str,
    words: str,
    versions: list[str],
    nccl: str,
    machine: str,
    environment: dict[str, str],
    fabric: str | None = "efa",
) -> list[str]:
    """Return those of a component's versions that have the fault whose row says `words`."""
    (row,) = [row for row in all_facts.faults.faults if row.component == component and words in row.why]
    return [v for v in versions if row.explanation({"nccl": nccl, component: v}, machine, environment, fabric)]


@pytest.mark.parametrize(
    ("words", "bad", "good"),
    [
        ("are aborted", ["1.13.0", "1.15.0"], ["1.12.1", "1.16.0", "1.21.1"]),
        ("EFA cancelled", ["1.10.0", "1.19.2"], ["1.9.2", "1.20.0"]),
        ("as without an EFA", ["1.16.3", "1.17.1"], ["1.17.2", "1.21.1"]),
        ("larger than the receive", ["1.7.0", "1.9.1"], ["1.6.0", "1.9.2"]),
        ("none of the interfaces", ["1.16.1", "1.20.0"], ["1.16.0", "1.21.0"]),
    ],
)
def test_releases_of_the_plugin_that_have_a_fault(
    all_facts: facts.Facts, words: str, bad: list[str], good: list[str]
) -> None:
    assert versions_with_fault(all_facts, "aws-ofi-nccl", words, [*bad, *good], "2.28.9", "aarch64", {}) == bad


@pytest.mark.parametrize(
    ("only_with", "value", "is_so"),
    [
        ("CONF=grow:True", "grow:True", True),
        ("CONF=grow:True", "max_split_size_mb:512,grow:True", True),
        ("CONF=grow:True", "max_split_size_mb: 512, grow: True", True),
        ("CONF=grow:True", "grow:False,max_split_size_mb:512", False),
        ("CONF", "0", True),
        ("CONF", "", False),
    ],
)
def test_a_variable_that_a_fault_depends_on_may_hold_a_list(only_with: str, value: str, is_so: bool) -> None:
    row = Fault(only_with=only_with, why="", fix="", source="x")
    assert row.is_avoided({"CONF": value}) == (not is_so)


def test_a_fault_beside_an_nccl_is_none_beside_an_older_one(all_facts: facts.Facts) -> None:
    (row,) = [row for row in all_facts.faults.faults if "as without an EFA" in row.why]
    explanations = [row.explanation({"aws-ofi-nccl": "1.17.1", "nccl": nccl}) for nccl in ("2.27.7", "2.28.3")]
    assert [bool(text) for text in explanations] == [False, True]


@pytest.mark.parametrize(
    ("words", "bad", "good", "machine", "environment"),
    [
        ("deadlocks", ["1.11.2"], ["1.12.0"], "x86_64", {}),
        ("not ready", ["1.18.0", "1.18.2amzn1.0"], ["1.17.1", "1.18.3", "1.19.0"], "x86_64", {}),
        ("doorbell", ["2.3.0", "2.3.1amzn4.0"], ["2.1.0", "2.4.0amzn1.0"], "aarch64", {}),
        ("doorbell", [], ["2.3.0"], "x86_64", {}),
        ("atomic", ["1.22.0", "2.4.0"], ["2.5.0"], "x86_64", {"FI_EFA_ENABLE_SHM_TRANSFER": "0"}),
        ("atomic", [], ["2.4.0"], "x86_64", {"FI_EFA_ENABLE_SHM_TRANSFER": "1"}),
    ],
)
def test_what_libfabric_says_was_wrong(
    all_facts: facts.Facts, words: str, bad: list[str], good: list[str], machine: str, environment: dict[str, str]
) -> None:
    versions = [*bad, *good]
    assert versions_with_fault(all_facts, "libfabric", words, versions, "2.27.7", machine, environment) == bad


@pytest.mark.parametrize(
    ("words", "bad", "good", "fabric", "machine", "environment"),
    [
        ("between more than four", ["2.19.4"], ["2.19.3", "2.20.3"], "efa", "x86_64", {}),
        ("with one interface for each GPU trees", ["2.18.1"], ["2.17.1", "2.18.3"], "efa", "x86_64", {}),
        ("two ranks that", ["2.19.1", "2.19.4"], ["2.18.6", "2.20.3"], "erdma", "x86_64", {}),
        ("reports an error", ["2.21.5", "2.25.1"], ["2.20.5", "2.26.2"], "efa", "x86_64", {}),
        ("reports an error", [], ["2.21.5"], "erdma", "x86_64", {}),
        ("reports an error", [], ["2.21.5"], "efa", "x86_64", {"OFI_NCCL_ABORT_ON_ERROR": "1"}),
        ("each address (GID) of a device", ["2.21.5", "2.25.1"], ["2.20.5", "2.26.2"], "erdma", "x86_64", {}),
        ("each address (GID) of a device", [], ["2.21.5"], "erdma", "x86_64", {"NCCL_IB_GID_INDEX": "1"}),
        ("CAP_SYS_NICE", ["2.24.3", "2.26.2"], ["2.23.4", "2.26.3"], "efa", "x86_64", {}),
        ("more than 80 ranks", ["2.25.1", "2.26.3"], ["2.24.3", "2.26.5"], "efa", "aarch64", {}),
        ("share host memory", ["2.27.3"], ["2.26.6", "2.27.5"], "efa", "aarch64", {}),
        ("before Blackwell", ["2.27.5", "2.27.6"], ["2.27.3", "2.27.7"], "efa", "x86_64", {}),
        ("network plugin does not start", ["2.28.3"], ["2.27.7", "2.28.7"], "efa", "x86_64", {}),
        ("loses the slots", ["2.28.9", "2.29.2"], ["2.28.7", "2.29.3"], "efa", "aarch64", {}),
        ("loses the slots", [], ["2.28.9"], "efa", "x86_64", {}),
        ("has not arrived", ["2.27.7", "2.29.7"], ["2.30.3"], "efa", "aarch64", {"NCCL_GDRCOPY_ENABLE": "1"}),
        ("has not arrived", [], ["2.27.7"], "efa", "aarch64", {}),
        ("CUDA_LAUNCH_BLOCKING", ["2.14.3", "2.16.5"], ["2.17.1"], "efa", "x86_64", {"CUDA_LAUNCH_BLOCKING": "1"}),
        ("can crash at its start", ["2.12.7", "2.12.10"], ["2.11.4", "2.12.12"], "efa", "x86_64", {}),
        ("THREAD_NAME", ["2.12.7", "2.12.10"], ["2.11.4", "2.12.12"], "efa", "x86_64", {"NCCL_SET_THREAD_NAME": "1"}),
        ("THREAD_NAME", [], ["2.12.7"], "efa", "x86_64", {}),
        ("not aligned", ["2.14.3"], ["2.15.5"], "efa", "x86_64", {}),
        ("different sizes", ["2.14.3", "2.17.1"], ["2.18.1"], "efa", "x86_64", {}),
        ("runs out of ports", ["2.14.3", "2.19.3"], ["2.19.4"], "efa", "x86_64", {}),
        ("were split", ["2.19.1", "2.20.3"], ["2.18.6", "2.20.5"], "efa", "x86_64", {}),
        ("were split", [], ["2.19.3"], "efa", "x86_64", {"NCCL_CUMEM_ENABLE": "0"}),
        ("one can take a message", ["2.20.5"], ["2.21.5"], "efa", "x86_64", {}),
        ("of different kinds", ["2.21.5"], ["2.22.3"], "efa", "x86_64", {}),
        ("NUMA", ["2.22.3"], ["2.23.4"], "erdma", "x86_64", {}),
        ("NUMA", [], ["2.22.3"], "efa", "x86_64", {}),
        ("own network IB", ["2.23.4"], ["2.24.3"], "erdma", "x86_64", {}),
        ("own network IB", [], ["2.23.4"], "efa", "x86_64", {}),
        ("registers by DMA-BUF", ["2.20.3", "2.23.4"], ["2.19.4", "2.24.3"], "efa", "x86_64", {}),
        ("registers by DMA-BUF", [], ["2.23.4"], "erdma", "x86_64", {}),
        ("is aborted", ["2.14.3", "2.25.1"], ["2.26.2"], "erdma", "x86_64", {}),
        ("share resources", ["2.18.1", "2.26.6"], ["2.17.1", "2.27.3"], "efa", "x86_64", {}),
        ("GDR_C2C", ["2.26.2"], ["2.25.1", "2.26.3"], "efa", "aarch64", {"NCCL_NET_GDR_C2C": "1"}),
        ("GDR_C2C", [], ["2.26.2"], "efa", "aarch64", {}),
        (
            "with the interface 2",
            ["2.26.2", "2.26.5"],
            ["2.25.1", "2.26.6"],
            "efa",
            "x86_64",
            {"NCCL_PROFILER_PLUGIN": "a"},
        ),
        ("with the interface 2", [], ["2.26.2"], "efa", "x86_64", {}),
        ("RAS", ["2.24.3", "2.26.6"], ["2.23.4", "2.27.3"], "efa", "x86_64", {}),
        ("RAS", [], ["2.24.3"], "efa", "x86_64", {"NCCL_RAS_ENABLE": "0"}),
        (
            "does not start with NCCL_TOPO",
            ["2.21.5", "2.26.6"],
            ["2.20.5", "2.27.3"],
            "efa",
            "aarch64",
            {"NCCL_TOPO_FILE": "/a"},
        ),
        ("does not start with NCCL_TOPO", [], ["2.26.6"], "efa", "x86_64", {"NCCL_TOPO_FILE": "/a"}),
        ("CROSS_NIC=0", ["2.28.3"], ["2.28.7"], "efa", "x86_64", {"NCCL_CROSS_NIC": "0"}),
        ("CROSS_NIC=0", [], ["2.28.3"], "efa", "x86_64", {"NCCL_CROSS_NIC": "1"}),
        ("errors of CUDA", ["2.28.3"], ["2.27.7", "2.28.7"], "efa", "x86_64", {}),
        ("order of operations", ["2.28.3", "2.28.7"], ["2.27.7", "2.28.9"], "efa", "x86_64", {}),
        ("on A100", ["2.25.1", "2.28.9"], ["2.24.3", "2.29.2"], "erdma", "x86_64", {}),
        ("on A100", [], ["2.27.7"], "efa", "x86_64", {}),
        ("COMM_ID", ["2.29.2", "2.29.7"], ["2.28.9", "2.30.3"], "efa", "x86_64", {"NCCL_COMM_ID": "10.0.0.1:2222"}),
        ("COMM_ID", [], ["2.29.7"], "efa", "x86_64", {}),
        ("side by side", ["2.21.5", "2.29.7"], ["2.20.5", "2.30.3"], "efa", "aarch64", {}),
        ("do not block", ["2.26.2", "2.26.5"], ["2.25.1", "2.27.3"], "efa", "x86_64", {NONBLOCKING: "1"}),
        ("do not block", [], ["2.26.2"], "efa", "x86_64", {NONBLOCKING: "0"}),
        ("before that was copied", ["2.18.1", "2.18.5"], ["2.17.1", "2.18.6"], "erdma", "x86_64", {}),
        ("the network failed", ["2.18.1", "2.18.6"], ["2.17.1", "2.19.1"], "efa", "x86_64", {}),
        ("a signal", ["2.12.7", "2.26.6"], ["2.27.3"], "efa", "x86_64", {}),
        ("on g7e", ["2.25.1"], ["2.24.3", "2.26.2"], "efa", "x86_64", {}),
        ("on g7e", [], ["2.25.1"], "erdma", "x86_64", {}),
        ("vLLM's symmetric", ["2.28.3", "2.30.4"], ["2.27.7", "2.30.7"], "efa", "x86_64", {VLLM_WINDOWS: "1"}),
        ("vLLM's symmetric", [], ["2.28.3"], "efa", "x86_64", {VLLM_WINDOWS: "0"}),
        ("torch's symmetric", ["2.28.3", "2.30.4"], ["2.27.7", "2.30.7"], "efa", "x86_64", {"TORCH_SYMMMEM": "NCCL"}),
        ("torch's symmetric", [], ["2.28.3"], "efa", "x86_64", {"TORCH_SYMMMEM": "NVSHMEM"}),
        ("by way of another GPU", ["2.29.7", "2.30.4"], ["2.29.3", "2.30.7"], "efa", "x86_64", {}),
        ("by way of another GPU", [], ["2.29.7"], "efa", "x86_64", {"NCCL_PXN_DISABLE": "1"}),
        ("several GPUs, GDRCopy", ["2.29.7"], ["2.30.3"], "efa", "x86_64", {"NCCL_GDRCOPY_ENABLE": "1"}),
        ("several GPUs, GDRCopy", [], ["2.29.7"], "efa", "x86_64", {}),
        ("data too early", ["2.30.4"], ["2.30.7"], "efa", "x86_64", {FLUSH: "1"}),
        ("data too early", [], ["2.30.4"], "efa", "aarch64", {FLUSH: "1"}),
        ("for x86 alone", ["2.30.4"], ["2.30.7"], "efa", "aarch64", {FLUSH: "1"}),
        ("for x86 alone", [], ["2.30.4"], "efa", "x86_64", {FLUSH: "1"}),
        ("processors near one GPU", ["2.29.2", "2.29.7"], ["2.28.9", "2.30.3"], "efa", "x86_64", {}),
        ("nobody asked for", ["2.31.2"], ["2.30.7", "2.32.3"], "efa", "x86_64", {"NCCL_PROFILER_PLUGIN": "a"}),
        ("nobody asked for", [], ["2.31.2"], "efa", "x86_64", {}),
        ("RUNTIME_CONNECT", ["2.31.2"], ["2.30.7", "2.32.3"], "efa", "x86_64", {"NCCL_RUNTIME_CONNECT": "0"}),
        ("RUNTIME_CONNECT", [], ["2.31.2"], "efa", "x86_64", {}),
    ],
)
def test_what_nccl_says_was_wrong(
    all_facts: facts.Facts,
    words: str,
    bad: list[str],
    good: list[str],
    fabric: str,
    machine: str,
    environment: dict[str, str],
) -> None:
    assert versions_with_fault(all_facts, "nccl", words, [*bad, *good], "", machine, environment, fabric) == bad


@pytest.mark.parametrize(
    ("versions", "environment", "reported"),
    [
        (["2.5.0", "2.5.1+cu124"], {}, True),
        (["2.4.1", "2.5.0a0+e000cf0", "2.6.0a0+df5bbc0", "2.6.0+cu124"], {}, False),
        (["2.5.1+cu124"], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, False),
        (["2.5.1+cu124"], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}, True),
    ],
)
def test_the_restarts_of_torch(
    all_facts: facts.Facts, versions: list[str], environment: dict[str, str], reported: bool
) -> None:
    (row,) = [row for row in all_facts.faults.faults if row.component == "torch"]
    assert [row.holds_for({"torch": v}, "x86_64", environment, "efa") for v in versions] == [reported] * len(versions)


@pytest.mark.parametrize("fabric", ["efa", "erdma"])
def test_no_fault_is_known_of_the_newest(all_facts: facts.Facts, fabric: str) -> None:
    newest = {"nccl": "2.32.3", "aws-ofi-nccl": "1.21.1", "libfabric": "2.6.0", "efa-installer": "1.50.0"}
    newest["torch"] = "2.15.0"
    assert [row.why for row in all_facts.faults.faults if row.explanation(newest, "aarch64", {}, fabric)] == []
