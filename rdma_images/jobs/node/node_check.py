"""Check this node and its neighbours, in seconds, before a job's command: has NCCL's network what it needs?

Prints a line for each finding, which `rdma_images.jobs.run.watch` reads: its severity, what it is about, a sentence.
Ends with 1 after an error. docs/guides/jobs.md has a table of them. The checks are in this folder's modules, each
on the kernel's files below a root, so that tests can write them.
"""

from __future__ import annotations

import argparse
import glob
import os
import sys
import time
from typing import TYPE_CHECKING

from rdma_images.jobs.node.device_settings import check_prefix, check_settings
from rdma_images.jobs.node.finding import NODE_CHECK, node_name, print_findings
from rdma_images.jobs.node.gpudirect import check_efa_peer, check_gdrcopy, check_gpudirect
from rdma_images.jobs.node.gpus import check_cuda, check_fabric_manager, check_gpus, check_kernel_log, has_nvlink
from rdma_images.jobs.node.interfaces import (
    bootstrap_interface,
    check_bootstrap,
    check_gloo_names,
    check_ipv6,
    check_own_address,
    check_proxy,
    check_route,
    ipv6_interfaces,
    network_identity,
    read_interfaces,
    socket_interfaces,
)
from rdma_images.jobs.node.limits import (
    check_folders,
    check_huge_pages,
    check_limits,
    check_memory,
    check_threads,
)
from rdma_images.jobs.node.names import check_comm_id, check_full_name, check_names, check_port
from rdma_images.jobs.node.nccl_settings import set_variables_of_files
from rdma_images.jobs.node.neighbours import Meeting, node_facts
from rdma_images.jobs.node.python_paths import check_hidden_modules, check_python_starts
from rdma_images.jobs.node.rails import rails
from rdma_images.jobs.node.rdma_devices import (
    check_devices,
    check_firmware,
    check_gids,
    check_link_layers,
    check_partition_keys,
    check_pci_links,
    check_rates,
    fabric_devices,
    read_devices,
)
from rdma_images.jobs.node.system import first_line, has_library, nccl_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rdma_images.jobs.node.finding import Finding
    from rdma_images.jobs.node.system import Version


def local_findings(root: str, options: argparse.Namespace, nccl: Version | None) -> Iterator[Finding]:
    """Yield the findings about this node alone; one where it has no GPU and no adapter."""
    devices = read_devices(root)
    gpus = glob.glob(root + "/dev/nvidia[0-9]*")
    if not devices and not gpus:
        sentence = "neither a GPU nor an RDMA device is here: only the names and interfaces were checked"
        yield "warning", "hardware", sentence
        return
    carriers = fabric_devices(devices, options.fabric)
    yield from check_devices(devices, options.fabric, options.adapters, options.nodes)
    yield from check_rates(carriers)
    if options.nodes > 1:
        yield from check_link_layers(carriers)
        yield from check_partition_keys(carriers, os.environ.get("NCCL_IB_PKEY", ""))
    yield from check_pci_links(carriers)
    yield from check_firmware(root)
    yield from check_settings(root, devices, carriers)
    yield from check_prefix(carriers)
    yield from check_gids(carriers, os.environ.get("NCCL_IB_GID_INDEX", ""), nccl)
    yield from check_memory(root, devices, is_alone=options.nodes < 2 and has_nvlink(root, len(gpus)))
    yield from check_limits(root, len(gpus), options.nodes)
    yield from check_threads(root, len(gpus))
    yield from check_folders(root)
    yield from check_huge_pages(root, options.fabric)
    yield from check_gpus(root, options.gpus, options.nodes)
    yield from check_cuda(root, gpus)
    yield from check_fabric_manager(root)
    yield from check_kernel_log(root)
    yield from check_gdrcopy(root, gpus, not root and has_library("libgdrapi.so.2"))
    if options.fabric == "efa":
        yield from check_efa_peer(root, devices, gpus)
    else:
        yield from check_gpudirect(root, devices, gpus, nccl)


def check(options: argparse.Namespace) -> Iterator[Finding]:
    """Yield the findings about this node, those about its neighbours last."""
    root = options.root.rstrip("/")
    nccl = None if root else nccl_version()
    yield from check_python_starts()
    yield from check_hidden_modules()
    yield from set_variables_of_files(root)
    yield from local_findings(root, options, nccl)
    rows = read_interfaces()
    setting = os.environ.get("NCCL_SOCKET_IFNAME", "")
    chosen = bootstrap_interface(rows, setting, nccl)
    yield from check_bootstrap(rows, chosen, setting, options.nodes)
    yield from check_own_address(chosen)
    yield from check_gloo_names(os.environ.get("GLOO_SOCKET_IFNAME", ""))
    yield from check_route(root, chosen)
    yield from check_proxy(root, options.nodes)
    yield from check_names(rows, options.nodes, options.rank, options.master)
    yield from check_full_name()
    yield from check_comm_id(rows, options.rank, os.environ.get("NCCL_COMM_ID", ""))
    yield from check_port(options.rank, os.environ.get("MASTER_PORT", ""), options.nodes, options.port)
    if options.nodes > 1 and options.master and chosen:
        devices = read_devices(root)
        facts = node_facts(root, devices, node_name(), nccl)
        facts["network"] = network_identity()
        facts["interfaces"] = socket_interfaces(rows, setting, nccl)
        facts["MTU of NCCL's first interface"] = first_line(root + "/sys/class/net/%s/mtu" % chosen.name)
        if not any(device.usable for device in devices):
            family = os.environ.get("NCCL_SOCKET_FAMILY", "")
            yield from check_ipv6(rows, ipv6_interfaces(root), setting, family)
        local_rails = rails(fabric_devices(devices, options.fabric))
        with Meeting(facts, chosen.address, options.nodes, options.rank, options.master, local_rails) as meeting:
            yield from meeting.findings()


def main(arguments: list[str]) -> int:
    """Check, print, and return the exit code: 1 after an error."""
    parser = argparse.ArgumentParser(prog=NODE_CHECK)
    parser.add_argument("--fabric", default="")
    parser.add_argument("--adapters", type=int, default=0)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--master", default="")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--root", default="/")
    started = time.monotonic()
    has_failed = print_findings(NODE_CHECK, check(parser.parse_args(arguments)))
    print(NODE_CHECK, node_name(), "done", "in %.1f s" % (time.monotonic() - started), flush=True)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
