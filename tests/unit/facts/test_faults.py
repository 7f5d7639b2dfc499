"""Faults of released versions: which versions have them, and beside what."""

import pytest

from rdma_images import facts
from rdma_images.facts.faults import Fault, join_fixes

NONBLOCKING, SYNC = "TORCH_NCCL_USE_COMM_NONBLOCKING", "FI_EFA_SET_CUDA_SYNC_MEMOPS"
ERDMA, GB200 = {"fabric": "erdma"}, {"machine": "aarch64"}


@pytest.mark.parametrize(
    ("component", "words", "bad", "good", "others"),
    [
        ("aws-ofi-nccl", "connects again", "1.8.0", "1.7.4 1.8.1", {}),
        ("aws-ofi-nccl", "refuses the protocol", "1.16.0 1.16.3", "1.15.0 1.17.0", {"nccl": "2.20.5"}),
        ("aws-ofi-nccl", "refuses the protocol", "", "1.16.0", {"nccl": "2.21.5"}),
        ("aws-ofi-nccl", "refuses the protocol", "", "1.16.0", {"nccl": "2.18.6"}),
        ("aws-ofi-nccl", "with this installer's driver", "1.10.0", "1.9.2 1.11.1", {"efa-installer": "1.35.0"}),
        ("aws-ofi-nccl", "with the driver of this installer", "1.12.0", "1.12.1", {"efa-installer": "1.36.0"}),
        ("aws-ofi-nccl", "sorts EFA", "", "1.10.0 1.12.0", {"efa-installer": "1.34.0"}),
        ("aws-ofi-nccl", "lacks headers", "1.9.0", "1.9.1", {}),
        ("aws-ofi-nccl", "of one page", "1.10.0 1.12.1", "1.9.2 1.13.0", {}),
        ("aws-ofi-nccl", "each other's locks", "1.14.0 1.17.3", "1.13.2 1.18.0", {}),
        ("aws-ofi-nccl", "1,024", "1.14.0 1.14.2", "1.15.0", {"libfabric": "2.1.0amzn2.0"}),
        ("aws-ofi-nccl", "1,024", "", "1.14.0", {"libfabric": "2.3.0"}),
        ("aws-ofi-nccl", "as without an EFA", "1.17.1", "1.17.2", {"nccl": "2.28.3"}),
        ("aws-ofi-nccl", "as without an EFA", "", "1.17.1", {"nccl": "2.27.7"}),
        ("aws-ofi-nccl", "none of the interfaces", "1.16.1 1.20.0", "1.16.0 1.21.0", GB200),
        ("aws-ofi-nccl", "large broadcast", "1.18.0", "1.17.3 1.19.0", {}),
        ("efa-installer", "asks for no dmabuf", "1.48.0", "1.49.0", GB200),
        ("efa-installer", "asks for no dmabuf", "", "1.48.0", {}),
        ("efa-installer", "NCCL ends", "1.28.0", "1.29.0", {"nccl": "2.19.3", SYNC: "1"}),
        ("efa-installer", "NCCL ends", "", "1.28.0", {"nccl": "2.19.3", SYNC: "0"}),
        ("libfabric", "not ready", "1.18.0 1.18.2amzn1.0", "1.17.1 1.18.3 1.19.0", {}),
        ("nccl", "segmentation fault", "2.28.7 2.28.9", "2.28.3 2.29.2 2.30.7", ERDMA),
        ("nccl", "segmentation fault", "", "2.28.9", {}),
        ("nccl", "two ranks that", "2.19.1 2.19.4", "2.18.6 2.20.3", ERDMA),
        ("nccl", "reports an error", "2.21.5 2.25.1", "2.20.5 2.26.2", {}),
        ("nccl", "reports an error", "", "2.21.5", ERDMA),
        ("nccl", "reports an error", "", "2.21.5", {"OFI_NCCL_ABORT_ON_ERROR": "1"}),
        ("nccl", "each address (GID) of a device", "2.21.5", "2.26.2", ERDMA),
        ("nccl", "each address (GID) of a device", "", "2.21.5", {**ERDMA, "NCCL_IB_GID_INDEX": "1"}),
        ("nccl", "CAP_SYS_NICE", "2.24.3 2.26.2", "2.23.4 2.26.3", {}),
        ("nccl", "loses the slots", "2.28.9 2.29.2", "2.28.7 2.29.3", GB200),
        ("nccl", "with a device, communicators", "2.26.2", "2.27.3", {"torch": "2.7.0"}),
        ("nccl", "with a device, communicators", "", "2.26.2", {"torch": "2.7.0", NONBLOCKING: "0"}),
        ("nccl", "with a device, communicators", "", "2.26.2", {"torch": "2.7.1"}),
        ("torch", "after a restart", "2.5.0 2.5.1+cu124", "2.4.1 2.5.0a0+e000cf0 2.6.0a0+df5bbc0 2.6.0+cu124", {}),
        ("torch", "after a restart", "", "2.5.1+cu124", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
        ("rdma-core", "of p6-b200", "43 52.0", "53 60.0", {"nccl": "2.25.1"}),
    ],
)
def test_versions_that_have_a_fault(
    all_facts: facts.Facts, component: str, words: str, bad: str, good: str, others: dict[str, str]
) -> None:
    """`others` are versions of other components, variables in capitals, and another machine or fabric."""
    rows = [row for row in all_facts.faults.faults if row.component == component and words in row.why]
    conditions = (others.get("machine", "x86_64"), others, others.get("fabric", "efa"))
    having = [
        version
        for version in f"{bad} {good}".split()
        if any(row.holds_for({"nccl": "2.23.4", **others, component: version}, *conditions) for row in rows)
    ]
    assert rows
    assert having == bad.split()


@pytest.mark.parametrize(
    ("only_with", "value", "is_so"),
    [
        ("CONF=grow:True", "grow:True", True),
        ("CONF=grow:True", "max_split_size_mb: 512, grow: True", True),
        ("CONF=grow:True", "grow:False,max_split_size_mb:512", False),
        ("CONF", "0", True),
        ("CONF", "", False),
    ],
)
def test_a_variable_that_a_fault_depends_on_may_hold_a_list(only_with: str, value: str, is_so: bool) -> None:
    row = Fault(only_with=only_with, why="", fix="", source="x")
    assert row.is_avoided({"CONF": value}) == (not is_so)


def test_of_fixes_by_one_component_the_newest_is_left() -> None:
    fixes = ["install NCCL 2.26.2 or later", "set A=1", "install NCCL 2.27.3 or later", "install NCCL 2.27.3 or later"]
    assert join_fixes(fixes) == "set A=1; install NCCL 2.27.3 or later"


@pytest.mark.parametrize("fabric", ["efa", "erdma"])
def test_no_fault_is_known_of_the_newest(all_facts: facts.Facts, fabric: str) -> None:
    newest = {"nccl": "2.32.3", "aws-ofi-nccl": "1.21.1", "libfabric": "2.6.0", "efa-installer": "1.50.0"}
    newest["torch"] = "2.15.0"
    assert [row.why for row in all_facts.faults.faults if row.holds_for(newest, "aarch64", {}, fabric)] == []
