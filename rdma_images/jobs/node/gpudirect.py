"""Check what lets adapters reach the GPUs' memory: drivers, PCI ACS and the IOMMU."""

from __future__ import annotations

import glob
import os
import struct
from typing import TYPE_CHECKING

from rdma_images.jobs.node.rdma_devices import fabric_devices
from rdma_images.jobs.node.system import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rdma_images.jobs.node.finding import Finding
    from rdma_images.jobs.node.rdma_devices import Device
    from rdma_images.jobs.node.system import Version

ACS_CAPABILITY, ATS_CAPABILITY, PCI_BRIDGE = 0x000D, 0x000F, 0x0604
ACS_REDIRECTS = 0x0004 | 0x0008  # of requests and of completions, in the ACS control register
ATS_ENABLED = 0x8000  # in the ATS control register


def has_open_driver(root: str) -> bool:
    """Return whether NVIDIA's open kernel modules are loaded, which have dma-buf."""
    return "Open Kernel Module" in first_line(root + "/proc/driver/nvidia/version")


def check_gpudirect(
    root: str, devices: list[Device], gpus: list[str], nccl: Version | None = None
) -> Iterator[Finding]:
    """Yield why GPUs and verbs devices cannot share memory."""
    if not (gpus and any(device.usable for device in devices)):
        return
    peers = root + "/sys/kernel/mm/memory_peers"
    loaded = os.path.isdir(root + "/sys/module/nvidia_peermem") or os.path.isdir(root + "/sys/module/nv_peer_mem")
    if loaded and os.path.isdir(peers) and not glob.glob(peers + "/nv*"):
        yield "warning", "peermem", "nvidia_peermem is loaded and not registered: load it after the RDMA drivers"
    has_dma_buf = has_open_driver(root)
    if not (loaded or has_dma_buf):
        sentence = (
            "neither nvidia_peermem nor a driver with dma-buf: GPUDirect RDMA is off: modprobe nvidia_peermem, or take "
            "NVIDIA's open kernel modules"
        )
        yield "warning", "peermem", sentence
    # src/transport/net_ib.cc up to 2.22.3 looks for what MLNX_OFED's peer memory shows, and not for the module.
    if loaded and not has_dma_buf and nccl and nccl < (2, 23, 4) and not glob.glob(peers + "/nv_mem*/version"):
        sentence = "NCCL before 2.23.4 does not see nvidia_peermem where %s/nv_mem is not there: GPUDirect RDMA is off"
        yield "warning", "peermem", sentence % peers
    if redirecting := acs_bridges(root):
        sentence = "PCI ACS redirects on %d bridges, as %s: GPUDirect RDMA fails or is slow"
        yield "warning", "acs", sentence % (len(redirecting), redirecting[0])
    # docs.nvidia.com/cuda/gpudirect-rdma, "IOMMUs": addresses have to be translated 1:1, or not at all. With ATS an
    # adapter sends translated ones itself. Arm's SMMU is left out: GPUDirect works with it on some clusters.
    translated = [
        device.name
        for device in devices
        if device.usable
        and first_line(device.path + "/device/iommu_group/type").startswith("DMA")
        and not control_register(device.path + "/device", ATS_CAPABILITY) & ATS_ENABLED
    ]
    if translated and os.uname().machine == "x86_64":
        sentence = "an IOMMU translates what %s sends, as to GPUs: GPUDirect RDMA fails or is slow: boot with iommu=pt"
        yield "warning", "iommu", sentence % ", ".join(translated[:4])


def check_gdrcopy(root: str, gpus: list[str], has_gdrcopy: bool) -> Iterator[Finding]:
    """Yield a finding if the image's GDRCopy has no driver to talk to."""
    if gpus and has_gdrcopy and not os.path.exists(root + "/dev/gdrdrv"):
        sentence = (
            "the image has GDRCopy, and /dev/gdrdrv is not here: load gdrdrv on the node, and give the pod the device"
        )
        yield "warning", "gdrcopy", sentence


def check_efa_peer(root: str, devices: list[Device], gpus: list[str]) -> Iterator[Finding]:
    """Yield a finding if EFA's driver does not reach the GPUs' memory."""
    efa = [device for device in fabric_devices(devices, "efa") if device.usable and device.peer]
    if gpus and efa and not has_open_driver(root) and all(device.peer == "NA" for device in efa):
        sentence = "EFA's driver does not reach the GPUs' memory (p2p of %s is NA): take NVIDIA's open kernel modules"
        yield "warning", "peer", sentence % efa[0].name


def acs_bridges(root: str) -> list[str]:
    """Return the PCI bridges whose ACS redirects requests; none if they cannot be read."""
    return [
        os.path.basename(path)
        for path in sorted(glob.glob(root + "/sys/bus/pci/devices/*"))
        if int(first_line(path + "/class") or "0", 16) >> 8 == PCI_BRIDGE
        and control_register(path, ACS_CAPABILITY) & ACS_REDIRECTS
    ]


def control_register(path: str, capability: int) -> int:
    """Return the control register of ACS or ATS of a PCI device; 0 for none."""
    try:
        with open(path + "/config", "rb") as file:
            space = file.read(4096)
    except OSError:
        return 0
    offset = 256
    while 256 <= offset <= len(space) - 8:
        head = struct.unpack_from("<I", space, offset)[0]
        if head & 0xFFFF == capability:
            return int(struct.unpack_from("<H", space, offset + 6)[0])
        following = head >> 20
        offset = following if following > offset else 0
    return 0
