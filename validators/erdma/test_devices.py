"""The eRDMA devices of a machine or pod. Absent hardware is a skip, never a pass."""

import re

from rdma_images.inspection.machine import Devices
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.machine import NO_DEVICE

JUMBO_MTU, PLAIN_MTU = 8500, 1400  # bytes: with and without jumbo frames


@validator("device.erdma-port", source="ibv_devinfo(1)", tier="device")
def test_erdma_port(devices: Devices, require: Requirement) -> None:
    """Every eRDMA port is active, and ibv_devinfo sees it so."""
    present = devices.of_fabric("erdma") or skip(NO_DEVICE["erdma"])
    shown = devices.tools["ibv_devinfo"].stdout
    down = [
        n for n, d in present.items() if "ACTIVE" not in d.state or not re.search(rf"hca_id:\s*{re.escape(n)}\b", shown)
    ]
    require(
        not down and "PORT_ACTIVE" in shown,
        expected=f"PORT_ACTIVE for {', '.join(present)}",
        actual=", ".join(f"{name}: {device.state or 'no state'}" for name, device in present.items()),
        fix="install Alibaba's libibverbs and provider in the image, and look at `dmesg` of the host for erdma",
    )


@validator("device.compat-mode", source="Alibaba Cloud ACK documentation", tier="device")
def test_compat_mode(devices: Devices, require: Requirement) -> None:
    """The eRDMA driver is in its RoCE compatible mode, which NCCL needs."""
    if not devices.of_fabric("erdma"):
        skip(NO_DEVICE["erdma"])
    require(
        devices.compat_mode == "Y",
        expected="Y in /sys/module/erdma/parameters/compat_mode",
        actual=devices.compat_mode or "no such parameter",
        fix="on the host: rmmod erdma; modprobe erdma compat_mode=Y, and the same in /etc/modprobe.d",
    )


@validator("device.mtu", source="Alibaba Cloud: eRDMA on GPU instances, MTU", tier="device")
def test_mtu(devices: Devices, require: Requirement) -> None:
    """The MTU of every eRDMA interface is one that keeps data whole."""
    present = devices.of_fabric("erdma") or skip(NO_DEVICE["erdma"])
    mtus = {name: device.mtu for name, device in present.items() if device.mtu}
    if not mtus:
        skip("the interfaces of the eRDMA devices are not visible here: use the host's network")
    require(
        all(mtu in (JUMBO_MTU, PLAIN_MTU) for mtu in mtus.values()),
        expected=f"{JUMBO_MTU} with jumbo frames (which NCCL's LL128 needs), {PLAIN_MTU} without",
        actual=", ".join(f"{name}: {mtu}" for name, mtu in mtus.items()),
        fix=f"ip link set <interface> mtu {JUMBO_MTU} where the instance has jumbo frames, else {PLAIN_MTU}",
    )
