"""What the validators of devices say of machines."""

import json
from pathlib import Path
from typing import Any

import pytest

from rdma_images.inspection.machine import Devices
from rdma_images.validate.validator import Requirement, SkippedError, UnmetError
from tests.support.validators_called import passed
from validators.efa import test_devices as efa_devices
from validators.efa_or_erdma import test_devices as fabric_devices
from validators.erdma import test_devices as erdma_devices

CASES = Path(__file__).parents[2] / "data" / "cases"
MACHINE = json.loads((CASES / "h200-x2.json").read_text())


def machine(**changes: Any) -> Devices:
    efa = {"driver": "efa", "state": "4: ACTIVE", "mtu": 0, "p2p": "NVIDIA"}
    base = {
        "instance": "p5en.48xlarge",
        "nodes": [f"uverbs{i}" for i in range(16)],
        "rdma": {f"rdmap{i}s0": efa for i in range(16)},
        "efa_domains": [f"rdmap{i}s0-rdm" for i in range(16)],
        "huge_pages": {"total": 10, "free": 5, "bytes": 2097152},
    }
    return Devices.model_validate({**MACHINE["devices"], **base, **changes})


def erdma(**changes: Any) -> Devices:
    device = {"driver": "erdma", "state": "4: ACTIVE", "mtu": 8500, "p2p": "", **changes.pop("device", {})}
    shown = changes.pop("shown", "hca_id:\terdma_0\n\tstate: PORT_ACTIVE (4)\n")
    tool = {"path": "ibv_devinfo", "exit_code": 0, "stdout": shown}
    result_fields = {"stderr": "", "timed_out": False, "seconds": 0.0}
    tools = {"ibv_devinfo": {**tool, **result_fields}, "fi_info -p efa": MACHINE["devices"]["tools"]["fi_info -p efa"]}
    data = {"instance": "", "rdma": {"erdma_0": device}, "compat_mode": "Y", "tools": tools, **changes}
    return Devices.model_validate({**MACHINE["devices"], **data})


GOOD = [
    (fabric_devices.test_nodes, (machine(), "efa")),
    (fabric_devices.test_nodes, (machine(nodes=[f"uverbs{i}" for i in range(15)]), "efa")),
    (fabric_devices.test_nodes, (machine(rdma={}), "efa")),
    (fabric_devices.test_nodes, (erdma(instance="ebmgn7ex.32xlarge", nodes=["uverbs0", "uverbs1"]), "erdma")),
    (efa_devices.test_efa_domains, (machine(),)),
    (fabric_devices.test_memlock, (machine(),)),
    (efa_devices.test_huge_pages, (machine(),)),
    (fabric_devices.test_gpudirect, (machine(), "efa")),
    (erdma_devices.test_erdma_port, (erdma(),)),
    (erdma_devices.test_erdma_port, (erdma(device={"driver": ""}),)),
    (erdma_devices.test_compat_mode, (erdma(),)),
    (erdma_devices.test_mtu, (erdma(),)),
    (erdma_devices.test_mtu, (erdma(device={"mtu": 1400}),)),
    (fabric_devices.test_gpudirect, (erdma(modules=[]), "erdma")),
    (fabric_devices.test_gpudirect, (erdma(modules=["nvidia", "nvidia_peermem"], nvidia_module=""), "erdma")),
    (fabric_devices.test_gpudirect, (erdma(), "erdma")),
]
BAD = [
    (fabric_devices.test_nodes, (machine(nodes=["uverbs0"]), "efa"), "16 on p5en.48xlarge"),
    (fabric_devices.test_nodes, (machine(nodes=[]), "efa"), "16 on p5en.48xlarge"),
    (fabric_devices.test_nodes, (machine(nodes=[f"uverbs{i}" for i in range(17)]), "efa"), "16 on p5en.48xlarge"),
    (efa_devices.test_efa_domains, (machine(efa_domains=["rdmap0s0-rdm"]),), "one for each"),
    (fabric_devices.test_memlock, (machine(memlock=65536),), "unlimited"),
    (fabric_devices.test_memlock, (machine(memlock=2 << 30),), "unlimited"),
    (efa_devices.test_huge_pages, (machine(huge_pages={"total": 10, "free": 0, "bytes": 2097152}),), "at least one"),
    (erdma_devices.test_erdma_port, (erdma(device={"state": "1: DOWN"}),), "PORT_ACTIVE"),
    (erdma_devices.test_erdma_port, (erdma(shown="No IB devices found"),), "PORT_ACTIVE"),
    (erdma_devices.test_erdma_port, (erdma(shown="hca_id:\terdma_1\n\tstate: PORT_ACTIVE (4)\n"),), "PORT_ACTIVE"),
    (erdma_devices.test_erdma_port, (erdma(shown="hca_id:\terdma_0\n\tstate: PORT_DOWN (1)\n"),), "PORT_ACTIVE"),
    (erdma_devices.test_compat_mode, (erdma(compat_mode="N"),), "Y in"),
    (erdma_devices.test_mtu, (erdma(device={"mtu": 1500}),), "8500"),
    (
        fabric_devices.test_gpudirect,
        (erdma(nvidia_module="NVIDIA UNIX x86_64 Kernel Module"), "erdma"),
        "nvidia_peermem",
    ),
    (fabric_devices.test_gpudirect, (erdma(device={"p2p": "NA"}, nvidia_module=""), "erdma"), "nvidia_peermem"),
]
ABSENT = [
    (fabric_devices.test_nodes, (machine(rdma={}, nodes=[]), "efa")),
    (fabric_devices.test_nodes, (machine(instance="unheard-of"), "efa")),
    (fabric_devices.test_nodes, (machine(), "erdma")),
    (efa_devices.test_efa_domains, (machine(rdma={}),)),
    (efa_devices.test_efa_domains, (erdma(),)),
    (erdma_devices.test_compat_mode, (machine(),)),
    (erdma_devices.test_mtu, (erdma(device={"mtu": 0}),)),
    (fabric_devices.test_gpudirect, (machine(modules=[], nvidia_module=""), "efa")),
]


def name(value: Any) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize(("validator", "measurements"), GOOD, ids=name)
def test_devices_as_they_should_be(validator: Any, measurements: tuple[Any, ...]) -> None:
    assert passed(validator, *measurements)


@pytest.mark.parametrize(("validator", "measurements", "expected"), BAD, ids=name)
def test_devices_at_fault(validator: Any, measurements: tuple[Any, ...], expected: str) -> None:
    require = Requirement()
    with pytest.raises(UnmetError):
        validator(*measurements, require)
    assert expected in require.expected
    assert require.actual
    assert require.fix


@pytest.mark.parametrize(("validator", "measurements"), ABSENT, ids=name)
def test_devices_that_are_absent_are_skipped(validator: Any, measurements: tuple[Any, ...]) -> None:
    with pytest.raises(SkippedError):
        validator(*measurements, Requirement())
