"""The RDMA devices of a fabric."""

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.inspection.machine import Devices, RdmaDevice

NO_DEVICE = {fabric: f"this machine has no {fabric} device" for fabric in FABRIC_TITLES}


def fabric_devices(devices: Devices, fabric: str) -> dict[str, RdmaDevice]:
    """Return the RDMA devices of a fabric by name."""
    return {
        name: device
        for name, device in devices.rdma.items()
        if device.driver == fabric or (fabric == "erdma" and "erdma" in name)
    }
