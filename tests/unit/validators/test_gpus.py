"""What the validators of GPUs say of a real machine, and of what may go wrong on one."""

import json
from pathlib import Path
from typing import Any

import pytest

from rdma_images.inspection.machine import MeasuredGpus
from rdma_images.validate.validator import Requirement, SkippedError, UnmetError
from tests.support.validators_called import passed
from validators.any import test_gpus as any_gpus
from validators.efa import test_gpus as efa_gpus
from validators.efa_or_erdma import test_gpus as fabric_gpus

CASES = Path(__file__).parents[2] / "data" / "cases"
LOGS = CASES.parent / "nccl-logs"
MACHINE = json.loads((CASES / "h200-x2.json").read_text())
for gpu_run in MACHINE["gpus"]["runs"].values():
    gpu_run["log"] = (LOGS / gpu_run["log"]).read_text()


RIGHT = {"is_right": True, "seconds": 0.1}
WRONG, LATE = [RIGHT, {"seconds": 0.1}], [RIGHT, {"error": "not done after 120 s"}]


def gpus(**changes: Any) -> MeasuredGpus:
    return MeasuredGpus.model_validate({**MACHINE["gpus"], **changes})


def changed(name: str, **changes: Any) -> MeasuredGpus:
    """Return the real machine, of whose all-reduce `name` something else came."""
    runs = MACHINE["gpus"]["runs"]
    return gpus(runs={**runs, name: {**runs[name], **changes}})


def elsewhere(**changes: Any) -> MeasuredGpus:
    """Return the real GPUs, with another network."""
    return gpus(network={**MACHINE["gpus"]["network"], **changes})


def test_real_gpus() -> None:
    assert passed(any_gpus.test_visible, gpus()) == "2: NVIDIA H200, NVIDIA H200"
    assert passed(any_gpus.test_peers, gpus())
    assert passed(any_gpus.test_all_reduce, gpus()) == "the sum is right on all GPUs, 1024 MiB at 329.0 GB/s"
    with pytest.raises(SkippedError, match="no device of EFA"):
        fabric_gpus.test_network(gpus(), "efa", Requirement())


def test_the_real_plugin_works_between_two_nodes_without_efa() -> None:
    check = passed(efa_gpus.test_plugin, gpus())
    assert check.startswith(
        "loaded as v11, aws-ofi-nccl 1.21.1 with libfabric 2.6, provider tcp, 32 regions of memory registered "
        "(73 MiB), 8 channels over libfabric between 2 nodes; the sum is right on all GPUs, 64 MiB at 2.5 GB/s"
    )
    assert check.endswith("in the place of EFA, for which the machine has no device")


def test_the_real_image_refuses_where_there_is_no_efa() -> None:
    check = passed(fabric_gpus.test_refusal, gpus(), "efa")
    assert check.startswith(
        "process 0: it ended with 1; process 1: it ended with 1; NCCL did not start: NCCL_NET names"
    )


def test_gpus_at_fault() -> None:
    for broken, words in ((WRONG, "the sum is wrong on 1 of 2 GPUs"), (LATE, "process 1: not done after 120 s")):
        with pytest.raises(UnmetError, match=words):
            any_gpus.test_all_reduce(changed("default", answers=broken), Requirement())
    with pytest.raises(UnmetError):
        any_gpus.test_peers(changed("default", log=(LOGS / "net-socket.log").read_text()), Requirement())
    with pytest.raises(SkippedError, match="CUDA sees no GPU"):
        any_gpus.test_visible(gpus(count=0, names=[]), Requirement())
    with pytest.raises(UnmetError):
        any_gpus.test_visible(gpus(names=["NVIDIA H200", "NVIDIA L40S"]), Requirement())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"log": (LOGS / "net-socket.log").read_text()}, "not loaded, not started, no provider.*channels over Socket"),
        ({"log": (LOGS / "p2p-default.log").read_text()}, "0 channels over libfabric between 1 nodes"),
        ({"log": (LOGS / "gpu-refusal.log").read_text(), "answers": [{"error": "x"}] * 2}, "no provider"),
        ({"answers": LATE}, "process 1: not done"),
    ],
    ids=["sockets", "one node", "no provider", "a crash"],
)
def test_a_plugin_that_does_not_do_its_work_is_reported_by_its_step(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UnmetError, match=expected):
        efa_gpus.test_plugin(changed("two-nodes", **changes), Requirement())


def test_a_wrong_sum_over_the_plugin_is_reported() -> None:
    with pytest.raises(UnmetError, match="; the sum is wrong on 1 of 2 GPUs"):
        efa_gpus.test_plugin(changed("two-nodes", answers=WRONG), Requirement())


def test_an_image_that_goes_on_over_tcp_does_not_refuse() -> None:
    """The real run with NCCL_NET=Libfabric alone: it ended with 0, over libfabric's tcp provider."""
    log = (LOGS / "gpu-refusal-missing.log").read_text()
    with pytest.raises(UnmetError, match="libfabric over tcp, not EFA") as raised:
        fabric_gpus.test_refusal(changed("refusal", answers=[RIGHT, RIGHT], log=log), "efa", Requirement())
    assert "set FI_PROVIDER=efa beside NCCL_NET" in str(raised.value)
    with pytest.raises(UnmetError):
        fabric_gpus.test_refusal(
            changed("refusal", answers=[RIGHT, {"error": "it ended with 1"}]), "efa", Requirement()
        )


def test_with_an_efa_the_network_is_checked_and_nothing_is_refused() -> None:
    with_device = elsewhere(device=True)
    with pytest.raises(UnmetError, match="libfabric over tcp, not EFA"):
        fabric_gpus.test_network(with_device, "efa", Requirement())
    with pytest.raises(SkippedError, match=r"see gpu\.network"):
        efa_gpus.test_plugin(with_device, Requirement())
    with pytest.raises(SkippedError, match="nothing to refuse"):
        fabric_gpus.test_refusal(with_device, "efa", Requirement())
    # The real log, as it would be where the plugin selects EFA.
    log = (LOGS / "gpu-two-nodes.log").read_text().replace("Selected provider is tcp", "Selected provider is efa")
    runs = changed("two-nodes", log=log).runs
    over_efa = MeasuredGpus.model_validate(
        {**with_device.model_dump(), "runs": {n: r.model_dump() for n, r in runs.items()}}
    )
    assert "EFA" in passed(fabric_gpus.test_network, over_efa, "efa")
    assert "in the place of" not in passed(efa_gpus.test_plugin, over_efa)


def test_an_image_that_allows_a_fallback_is_held_to_no_refusal() -> None:
    with pytest.raises(SkippedError, match="allows a fallback"):
        fabric_gpus.test_refusal(elsewhere(required_network=""), "efa", Requirement())


def test_without_a_plugin_the_static_check_tells() -> None:
    with pytest.raises(SkippedError, match=r"see plugin\.found"):
        efa_gpus.test_plugin(elsewhere(plugin=""), Requirement())


@pytest.mark.parametrize(
    ("check", "count", "reason"),
    [
        (any_gpus.test_all_reduce, 1, "2 GPUs: there are 1"),
        (any_gpus.test_peers, 1, "2 GPUs: there are 1"),
        (efa_gpus.test_plugin, 0, "1 GPU: there are 0"),
    ],
)
def test_too_few_gpus(check: Any, count: int, reason: str) -> None:
    with pytest.raises(SkippedError, match=reason):
        check(gpus(count=count, runs={}), Requirement())
