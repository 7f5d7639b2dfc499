"""The EFA devices of a machine or pod. Absent hardware is a skip, never a pass."""

from rdma_images.inspection.machine import Devices
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.machine import NO_DEVICE


@validator("device.efa-domains", source="fi_info(1)", tier="device")
def test_efa_domains(devices: Devices, require: Requirement) -> None:
    """libfabric has a domain with reliable datagrams for every EFA."""
    present = devices.of_fabric("efa") or skip(NO_DEVICE["efa"])
    domains = devices.efa_domains
    require(
        len(domains) == len(present),
        expected=f"{len(present)}, one for each of {', '.join(present)}",
        actual=f"{len(domains)}: {', '.join(domains) or devices.tools['fi_info -p efa'].stderr}",
        fix="run `FI_LOG_LEVEL=info fi_info -p efa -t FI_EP_RDM`; look at the container's devices and memlock limit",
    )


@validator(
    "device.huge-pages",
    source="the EFA provider takes its buffers from huge pages",
    tier="device",
    severity="warning",
)
def test_huge_pages(devices: Devices, require: Requirement) -> None:
    """Huge pages are set aside and some are free."""
    if not devices.of_fabric("efa"):
        skip(NO_DEVICE["efa"])
    pages = devices.huge_pages
    require(
        pages.free > 0,
        expected="at least one free",
        actual=f"{pages.free} of {pages.total} free, {pages.bytes} bytes each",
        fix="set vm.nr_hugepages on the host, or FI_EFA_USE_HUGE_PAGE=0 in jobs whose data loaders fork",
    )
