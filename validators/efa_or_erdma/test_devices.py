"""The RDMA devices of a machine or pod. Absent hardware is a skip, never a pass."""

import re

from rdma_images.facts import facts_file
from rdma_images.facts.instances import Instances
from rdma_images.inspection.machine import Devices
from rdma_images.preflight.devices import MIN_LOCKED_BYTES
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.machine import NO_DEVICE

VERBS = re.compile(r"uverbs\d+")
OPEN_KERNEL_MODULE = "Open Kernel Module"


@validator("device.nodes", source="facts/instances.yaml", tier="device")
def test_nodes(devices: Devices, fabric: str, require: Requirement) -> None:
    """As many RDMA devices are in the container as the instance type has."""
    table = facts_file.read(Instances)
    instance = table.types.get(devices.instance) or table.types.get(f"ecs.{devices.instance}")
    nodes = [name for name in devices.nodes if VERBS.fullmatch(name)]
    if not nodes and not devices.rdma:
        skip("this machine has no RDMA device")
    if not instance or instance.fabric != fabric:
        skip(f"how many {fabric} interfaces {devices.instance or 'this machine'} has is not known")
    # Where the first card carries the node's own address, one interface fewer can be given to pods.
    require(
        instance.interfaces - 1 <= len(nodes) <= instance.interfaces,
        expected=f"{instance.interfaces} on {devices.instance}, or one fewer in a pod [{table.cite(instance)}]",
        actual=f"{len(nodes)}: {', '.join(nodes) or 'none, though the machine has devices'}",
        fix="give the container its devices: --device=/dev/infiniband, vpc.amazonaws.com/efa or aliyun/erdma",
    )


@validator("device.memlock", source="ulimit -l; RDMA locks the memory it uses", tier="device")
def test_memlock(devices: Devices, require: Requirement) -> None:
    """Memory can be locked without a limit."""
    require(
        devices.memlock is None,
        expected="unlimited",
        actual="unlimited" if devices.memlock is None else f"{devices.memlock} bytes",
        fix="docker run --ulimit memlock=-1; for pods LimitMEMLOCK=infinity in containerd's unit, then restart it",
        severity="warning" if (devices.memlock or 0) >= MIN_LOCKED_BYTES else "error",
    )


@validator(
    "device.gpudirect",
    source="NVIDIA GPUDirect RDMA; EFA's driver names its peer in sysfs",
    tier="device",
    severity="warning",
)
def test_gpudirect(devices: Devices, fabric: str, require: Requirement) -> None:
    """The kernel has what GPUDirect RDMA needs."""
    present = devices.of_fabric(fabric) or skip(NO_DEVICE[fabric])
    if "nvidia" not in devices.modules and not devices.nvidia_module:
        skip("this machine has no NVIDIA driver")
    ways = [f"{name}: {device.p2p}" for name, device in present.items() if device.p2p and device.p2p != "NA"]
    ways += [module for module in devices.modules if module in ("nvidia_peermem", "nv_peer_mem")]
    ways += ["dma-buf (open kernel module)"] if OPEN_KERNEL_MODULE in devices.nvidia_module else []
    require(
        bool(ways),
        expected="nvidia_peermem, dma-buf with NVIDIA's open kernel module, or a peer in EFA's driver",
        actual=", ".join(ways) or "none of them",
        fix="modprobe nvidia_peermem on the host, or install NVIDIA's open kernel module",
    )
