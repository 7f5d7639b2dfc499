"""The answer for a fabric that was asked for is a check of its own, whatever the image is for."""

from collections.abc import Mapping

import pytest

from rdma_images.core.check import Check
from rdma_images.inspection.inspection import Inspection
from rdma_images.validate import suite
from tests.support.chain_parts import NONE, image, plugin

STARTED = plugin("3 NET/OFI No eligible providers were found", "2 NET/OFI Initializing plugin failed")


def chain_holds(inspection: Inspection, fabric: str) -> Check:
    """Return the check of the chain for a fabric that was asked for."""
    expected = inspection.expected.model_copy(update={"requested_fabric": fabric})
    return suite.run(inspection.model_copy(update={"expected": expected}), only={"chain.holds"})[0]


@pytest.mark.parametrize(
    ("fabric", "environment", "outcome", "words"),
    [
        ("", NONE, "passed", "would use EFA"),
        ("efa", NONE, "passed", "would use EFA"),
        ("ib", NONE, "failed", "which FI_PROVIDER=efa keeps from InfiniBand"),
        ("erdma", NONE, "failed", "which FI_PROVIDER=efa keeps from eRDMA"),
        ("none", NONE, "failed", "which FI_PROVIDER=efa keeps from TCP"),
        ("none", {"NCCL_NET": ""}, "passed", "would use TCP sockets"),
    ],
)
def test_a_broken_chain_is_an_error_for_the_fabric_that_was_asked_for(
    fabric: str, environment: Mapping[str, str], outcome: str, words: str
) -> None:
    check = chain_holds(image(STARTED, environment), fabric)
    assert (check.outcome, check.severity, words in check.actual) == (outcome, "error", True), check
    assert bool(check.fix) is (outcome == "failed")


@pytest.mark.parametrize("fabric", ["", "efa", "ib"])
def test_a_variable_that_keeps_nccl_from_every_fabric_is_one_finding(fabric: str) -> None:
    case = image(STARTED, {"NCCL_NET": "Socket"})
    labels = {"io.rdma-images.fabric": "efa", "io.rdma-images.fallback": "refuse"}
    subject = case.subject.model_copy(update={"labels": {**case.subject.labels, **labels}})
    expected = case.expected.model_copy(update={"requested_fabric": fabric})
    results = suite.run(case.model_copy(update={"subject": subject, "expected": expected}))
    failed = {check.id: check for check in results if check.outcome == "failed" and "NCCL_NET" in check.actual}
    assert list(failed) == ["environment.harmful"]
    assert "set NCCL_NET=Libfabric" in failed["environment.harmful"].fix
