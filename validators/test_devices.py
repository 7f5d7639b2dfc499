"""Validators of what a machine or pod gives the image for its fabric. Absent hardware is a skip, never a pass."""

import re

import pytest

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts import facts_file
from rdma_images.facts.instances import Instances
from rdma_images.inspection.machine import Devices, RdmaDevice
from rdma_images.validate.pytest_plugin import Requirement

VERBS = re.compile(r"uverbs\d+")
OPEN_KERNEL_MODULE = "Open Kernel Module"
NO_DEVICE = {fabric: f"this machine has no {fabric} device" for fabric in FABRIC_TITLES}
JUMBO_MTU, PLAIN_MTU = 8500, 1400  # bytes: with and without jumbo frames


def fabric_devices(devices: Devices, fabric: str) -> dict[str, RdmaDevice]:
    """Return the RDMA devices of a fabric by name."""
    return {
        name: device
        for name, device in devices.rdma.items()
        if device.driver == fabric or (fabric == "erdma" and "erdma" in name)
    }


@pytest.mark.validator("device.nodes", source="facts/instances.yaml", tier="device", fabric="any")
def test_nodes(devices: Devices, fabric: str, require: Requirement) -> None:
    """As many RDMA devices are in the container as the instance type has."""
    table = facts_file.read(Instances)
    instance = table.types.get(devices.instance) or table.types.get(f"ecs.{devices.instance}")
    nodes = [name for name in devices.nodes if VERBS.fullmatch(name)]
    if not nodes and not devices.rdma:
        pytest.skip("this machine has no RDMA device")
    if not instance or instance.fabric != fabric:
        pytest.skip(f"how many {fabric} interfaces {devices.instance or 'this machine'} has is not known")
    # Where the first card carries the node's own address, one interface fewer can be given to pods.
    require(
        instance.interfaces - 1 <= len(nodes) <= instance.interfaces,
        expected=f"{instance.interfaces} on {devices.instance}, or one fewer in a pod [{table.cite(instance)}]",
        actual=f"{len(nodes)}: {', '.join(nodes) or 'none, though the machine has devices'}",
        fix="give the container its devices: --device=/dev/infiniband, vpc.amazonaws.com/efa or aliyun/erdma",
    )


@pytest.mark.validator("device.efa-domains", source="fi_info(1)", tier="device", fabric="efa")
def test_efa_domains(devices: Devices, require: Requirement) -> None:
    """libfabric has a domain with reliable datagrams for every EFA."""
    present = fabric_devices(devices, "efa") or pytest.skip(NO_DEVICE["efa"])
    require(
        len(devices.efa_domains) == len(present),
        expected=f"{len(present)}, one for each of {', '.join(present)}",
        actual=f"{len(devices.efa_domains)}: {', '.join(devices.efa_domains) or devices.tools['fi_info -p efa'].err}",
        fix="run `FI_LOG_LEVEL=info fi_info -p efa -t FI_EP_RDM`; look at the container's devices and memlock limit",
    )


@pytest.mark.validator("device.erdma-port", source="ibv_devinfo(1)", tier="device", fabric="erdma")
def test_erdma_port(devices: Devices, require: Requirement) -> None:
    """Every eRDMA port is active, and ibv_devinfo sees it so."""
    present = fabric_devices(devices, "erdma") or pytest.skip(NO_DEVICE["erdma"])
    shown = devices.tools["ibv_devinfo"].out
    down = [
        n for n, d in present.items() if "ACTIVE" not in d.state or not re.search(rf"hca_id:\s*{re.escape(n)}\b", shown)
    ]
    require(
        not down and "PORT_ACTIVE" in shown,
        expected=f"PORT_ACTIVE for {', '.join(present)}",
        actual=", ".join(f"{name}: {device.state or 'no state'}" for name, device in present.items()),
        fix="install Alibaba's libibverbs and provider in the image, and look at `dmesg` of the host for erdma",
    )


@pytest.mark.validator("device.memlock", source="ulimit -l; RDMA locks the memory it uses", tier="device", fabric="any")
def test_memlock(devices: Devices, require: Requirement) -> None:
    """Memory can be locked without a limit."""
    require(
        devices.memlock is None,
        expected="unlimited",
        actual="unlimited" if devices.memlock is None else f"{devices.memlock} bytes",
        fix="docker run --ulimit memlock=-1; for pods LimitMEMLOCK=infinity in containerd's unit, then restart it",
    )


@pytest.mark.validator(
    "device.huge-pages",
    source="the EFA provider takes its buffers from huge pages",
    tier="device",
    severity="warning",
    fabric="efa",
)
def test_huge_pages(devices: Devices, require: Requirement) -> None:
    """Huge pages are set aside and some are free."""
    if not fabric_devices(devices, "efa"):
        pytest.skip(NO_DEVICE["efa"])
    pages = devices.huge_pages
    require(
        pages.free > 0,
        expected="at least one free",
        actual=f"{pages.free} of {pages.total} free, {pages.bytes} bytes each",
        fix="set vm.nr_hugepages on the host, or FI_EFA_USE_HUGE_PAGE=0 in jobs whose data loaders fork",
    )


@pytest.mark.validator("device.compat-mode", source="Alibaba Cloud ACK documentation", tier="device", fabric="erdma")
def test_compat_mode(devices: Devices, require: Requirement) -> None:
    """The eRDMA driver is in its RoCE compatible mode, which NCCL needs."""
    if not fabric_devices(devices, "erdma"):
        pytest.skip(NO_DEVICE["erdma"])
    require(
        devices.compat_mode == "Y",
        expected="Y in /sys/module/erdma/parameters/compat_mode",
        actual=devices.compat_mode or "no such parameter",
        fix="on the host: rmmod erdma; modprobe erdma compat_mode=Y, and the same in /etc/modprobe.d",
    )


@pytest.mark.validator(
    "device.gpudirect",
    source="NVIDIA GPUDirect RDMA; EFA's driver names its peer in sysfs",
    tier="device",
    severity="warning",
    fabric="any",
)
def test_gpudirect(devices: Devices, fabric: str, require: Requirement) -> None:
    """What GPUDirect RDMA needs of the kernel is there."""
    present = fabric_devices(devices, fabric) or pytest.skip(NO_DEVICE[fabric])
    if "nvidia" not in devices.modules and not devices.nvidia_module:
        pytest.skip("this machine has no NVIDIA driver")
    ways = [f"{name}: {device.p2p}" for name, device in present.items() if device.p2p and device.p2p != "NA"]
    ways += [module for module in devices.modules if module in ("nvidia_peermem", "nv_peer_mem")]
    ways += ["dma-buf (open kernel module)"] if OPEN_KERNEL_MODULE in devices.nvidia_module else []
    require(
        bool(ways),
        expected="nvidia_peermem, dma-buf with NVIDIA's open kernel module, or a peer in EFA's driver",
        actual=", ".join(ways) or "none of them",
        fix="modprobe nvidia_peermem on the host, or install NVIDIA's open kernel module",
    )


@pytest.mark.validator("device.mtu", source="Alibaba Cloud: eRDMA on GPU instances, MTU", tier="device", fabric="erdma")
def test_mtu(devices: Devices, require: Requirement) -> None:
    """The MTU of every eRDMA interface is one that keeps data whole."""
    present = fabric_devices(devices, "erdma") or pytest.skip(NO_DEVICE["erdma"])
    mtus = {name: device.mtu for name, device in present.items() if device.mtu}
    if not mtus:
        pytest.skip("the interfaces of the eRDMA devices are not visible here: use the host's network")
    require(
        all(mtu in (JUMBO_MTU, PLAIN_MTU) for mtu in mtus.values()),
        expected=f"{JUMBO_MTU} with jumbo frames (which NCCL's LL128 needs), {PLAIN_MTU} without",
        actual=", ".join(f"{name}: {mtu}" for name, mtu in mtus.items()),
        fix=f"ip link set <interface> mtu {JUMBO_MTU} where the instance has jumbo frames, else {PLAIN_MTU}",
    )
