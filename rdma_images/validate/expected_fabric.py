"""The fabric that an image is for: the plan's, else its label's, else the one that its content shows."""

import re

from rdma_images.core.image import Fabric, Image
from rdma_images.inspection.inspection import Expected, ImageConfig, base_name
from rdma_images.inspection.measurements import Measured

# Of its packages for eRDMA: ibverbs-providers 56.2-1.0.3 for jammy, in a third party's record of August 2026. Those of
# distributions are such as 50.0-2ubuntu0.2.
ALIBABA_VERSION = re.compile(r"^\d+\.\d+-\d+\.\d+\.\d+$")


def image_expectations(image_config: ImageConfig, measured: Measured, image: Image | None) -> Expected:
    """Return what the image must have.

    One without a sign of a fabric is not validated for one.
    """
    if image:
        versions = {name: component.version for name, component in image.components.items()}
        return Expected(fabric=image.fabric, reason="as planned", target=image.target, components=versions)
    label = image_config.label("fabric")
    target = image_config.label("target")
    if label in ("efa", "erdma"):
        fabric: Fabric = "efa" if label == "efa" else "erdma"
        return Expected(fabric=fabric, reason=f"its label says {label}", target=target)
    guess, because = guess_fabric(image_config, measured)
    return Expected(fabric=guess, reason=because, target=target)


def guess_fabric(image_config: ImageConfig, measured: Measured) -> tuple[Fabric | None, str]:
    """Return a fabric and how it was guessed, from the strongest sign to the weakest."""
    for device, device_facts in (measured.devices.rdma if measured.devices else {}).items():
        if device_facts.driver == "efa" or device.startswith("erdma"):
            return "efa" if device_facts.driver == "efa" else "erdma", f"guessed: the machine has {device}"
    files = measured.tree.files.library_files if measured.tree else {}
    plugins = measured.tree.libraries.plugins if measured.tree else {}
    under_efa = next((path for path in files if path.startswith("/opt/amazon/efa/")), None)
    if under_efa:
        return "efa", f"guessed: the EFA installer was here ({under_efa})"
    if measured.packages and measured.packages.efa_installer:
        return "efa", f"guessed: the EFA installer {measured.packages.efa_installer} was here"
    has_libefa = any(base_name(path).startswith("libefa.so") for path in files)
    for path, plugin in plugins.items():
        # One for another provider, such as Slingshot's cxi, needs libfabric, too, and has no AWS platform.
        to_libfabric = "libfabric.so.1" in plugin.needed or "ofi" in base_name(path)
        if plugin.aws_platform or (to_libfabric and has_libefa):
            return "efa", f"guessed: {path} brings NCCL to libfabric"
    if measured.gpus and measured.gpus.network.plugin:
        return "efa", f"guessed: {measured.gpus.network.plugin} brings NCCL to libfabric"
    hca = image_config.environment.get("NCCL_IB_HCA", "")
    if "erdma" in hca:
        return "erdma", f"guessed: NCCL_IB_HCA={hca}"
    packages = {
        **(measured.packages.dpkg if measured.packages else {}),
        **(measured.packages.rpm if measured.packages else {}),
    }
    for name in ("eadm", "erdma", "libibverbs-erdma"):
        if name in packages:
            return "erdma", f"guessed: the package {name} is installed"
    for name in ("ibverbs-providers", "libibverbs", "libibverbs1"):
        if ALIBABA_VERSION.search(packages.get(name, "")):
            return "erdma", f"guessed: {name} {packages[name]} is Alibaba's"
    if eadm := next((path for path in files if base_name(path) == "eadm"), None):
        return "erdma", f"guessed: Alibaba's tool for eRDMA is here ({eadm})"
    signs = "no label, no /opt/amazon/efa, no network plugin, no eRDMA tools" if measured.tree else "no RDMA device"
    return None, f"no sign of EFA or eRDMA ({signs})"
