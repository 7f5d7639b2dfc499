"""Check the fabric's RDMA devices: that they can be opened, their ports, GIDs and MTU."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from rdma_images.preflight.devices import active_mtus, fabric_devices, named_devices, selected_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rdma_images.preflight.devices import Device
    from rdma_images.preflight.system import Finding, NcclLibrary

MTUS = (256, 512, 1024, 2048, 4096)  # of RDMA: a device has the largest that fits into its interface's
REFUSALS = {
    errno.EACCES: "this user has no right to its file: rdma-core's udev rules give it mode 0666",
    errno.EPERM: "the container's cgroup does not let the device in: ask for it, as with --device",
}


def check_devices(devices: list[Device], fabric: str, count: int, nodes: int) -> Iterator[Finding]:
    """Yield what is wrong with the fabric's devices; one node may do without any.

    Args:
        devices: The node's RDMA devices.
        fabric: What is required: efa, erdma or any; "" where TCP may be the job's network.
        count: The adapters that the job asked for; 0 where it did not say.
        nodes: Number of the job's nodes.
    """
    carriers = fabric_devices(devices, fabric)
    usable = [device for device in carriers if device.is_usable]
    if nodes < 2 and not (fabric or count or usable):
        return
    severity = "error" if fabric or count else "warning"
    refused = [device for device in carriers if device.open_errno not in (0, errno.ENOENT)]
    reason = ""
    if refused:
        words = REFUSALS.get(refused[0].open_errno, "no more is known")
        reason = "%s cannot be opened: %s; %s" % (refused[0].name, os.strerror(refused[0].open_errno), words)
    if not carriers:
        kind = "RDMA" if fabric in ("", "any") else fabric
        sentence = "the kernel has no %s device: its driver is not loaded, or the instance has none" % kind
        yield severity if fabric or count else "note", "devices", sentence
    elif not usable:
        names = ", ".join(device.name for device in carriers[:4])
        absent = "the kernel has %s, and /dev/infiniband of this container none of them: ask for the devices" % names
        yield severity, "devices", reason or absent
    elif len(usable) < count:
        counted = "%d of %d adapters can be used here" % (len(usable), count)
        # With one less the job runs nearly as fast, and a device plugin may have kept it for the node.
        severity = "error" if len(usable) < count - 1 else "warning"
        yield severity, "devices", "%s: %s" % (counted, reason) if reason else counted
    down = [device.name for device in selected_devices(usable) if device.state and not device.is_active]
    if down:
        yield "error", "ports", "the port is not active: %s" % ", ".join(down)
    others = [device.name for device in devices if device.is_usable and device not in carriers]
    if fabric == "efa" and usable and others:
        sentence = (
            "%s is in /dev/infiniband, too, and can hide EFA: leave out a hostPath of /dev/infiniband; EFA's device "
            "plugin before 0.5.10 counts NVLink's controllers as EFA"
        )
        yield "warning", "devices", sentence % others[0]
    # Of a setting that excludes devices none need be here.
    setting = os.environ.get("NCCL_IB_HCA", "")
    for name, fitting in named_devices(carriers, setting).items() if carriers and setting[:1] != "^" else ():
        if not fitting:
            yield "warning", "devices", "NCCL_IB_HCA names %s, and no adapter here has that name" % name


def check_gids(devices: list[Device], index: str, nccl: NcclLibrary | None) -> Iterator[Finding]:
    """Yield RoCE devices without a routed GID, or of which NCCL takes another one.

    Args:
        devices: The fabric's devices.
        index: The value of NCCL_IB_GID_INDEX, "" where it is not set.
        nccl: The job's; None where it is not known.
    """
    takes_first_gid = nccl is not None and nccl.version < (2, 21, 0) and not index  # src/transport/net_ib.cc
    for device in selected_devices(devices):
        if not (device.is_usable and device.link_layer == "Ethernet"):
            continue
        if not any("v2" in kind and not gid.is_link_local for _, gid, kind in device.gids):
            sentence = "%s has no GID of RoCE v2 that is routed: give its interface an IP address"
            yield "error", "gids", sentence % device.name
        routed = [number for number, gid, kind in device.gids if "v2" in kind and gid.ipv4_mapped]
        if takes_first_gid and routed and 0 not in routed:
            sentence = "NCCL before 2.21 takes GID 0 of %s, which is not routed: NCCL_IB_GID_INDEX=%d"
            yield "warning", "gids", sentence % (device.name, routed[0])
        chosen = [gid for number, gid, _ in device.gids if index.isdigit() and number == int(index)]
        if index.isdigit() and not chosen:
            yield "error", "gids", "NCCL_IB_GID_INDEX=%s, and %s has no such GID" % (index, device.name)
        elif chosen and chosen[0].is_link_local:
            yield "warning", "gids", "NCCL_IB_GID_INDEX=%s is a link-local GID of %s" % (index, device.name)


def check_mtu(devices: list[Device], expected: int) -> Iterator[Finding]:
    """Yield the fabric's devices with another MTU than the job's: with NCCL's LL128 it corrupts data.

    `expected` is that of their network interfaces; 0 where any will do.
    """
    fitting = max((mtu for mtu in MTUS if mtu <= expected), default=0)
    mtus = active_mtus() if fitting else {}
    for device in devices if fitting else ():
        if device.mtu and device.mtu != str(expected):
            sentence = "the interface of %s has an MTU of %s, and the job was made for %d"
            yield "error", "mtu", sentence % (device.name, device.mtu, expected)
        elif not device.mtu and mtus.get(device.name, fitting) != fitting:
            sentence = "%s has an active MTU of %d, and over an interface with the job's MTU of %d it has %d"
            yield "error", "mtu", sentence % (device.name, mtus[device.name], expected, fitting)
