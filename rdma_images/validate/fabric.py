"""Which fabric an image is meant for: what was planned, else what it says, else what is in it."""

from rdma_images.model import Fabric, Image
from rdma_images.validate.case import Expected, name_of
from rdma_images.validate.measured import Measured
from rdma_images.validate.subject import Subject


def expected(subject: Subject, found: Measured, image: Image | None) -> Expected:
    """What to hold the image against. An image of which nothing speaks for a fabric is held to none."""
    if image:
        versions = {name: component.version for name, component in image.components.items()}
        return Expected(fabric=image.fabric, because="as planned", target=image.target, components=versions)
    said = subject.label("fabric")
    target = subject.label("target")
    if said in ("efa", "erdma"):
        fabric: Fabric = "efa" if said == "efa" else "erdma"
        return Expected(fabric=fabric, because=f"its label says {said}", target=target)
    guess, because = guessed(subject, found)
    return Expected(fabric=guess, because=because, target=target)


def guessed(subject: Subject, found: Measured) -> tuple[Fabric | None, str]:
    """A fabric and how it was guessed, from the strongest sign to the weakest."""
    for device, about in (found.devices.rdma if found.devices else {}).items():
        if about.driver == "efa" or device.startswith("erdma"):
            return "efa" if about.driver == "efa" else "erdma", f"guessed: the machine has {device}"
    files = found.tree.files.libraries if found.tree else {}
    plugins = found.tree.libraries.plugins if found.tree else {}
    under_efa = next((path for path in files if path.startswith("/opt/amazon/efa/")), None)
    if under_efa:
        return "efa", f"guessed: the EFA installer was here ({under_efa})"
    if found.packages and found.packages.efa_installer:
        return "efa", f"guessed: the EFA installer {found.packages.efa_installer} was here"
    for path, plugin in plugins.items():
        if "libfabric.so.1" in plugin.needed or "ofi" in name_of(path):
            return "efa", f"guessed: {path} brings NCCL to libfabric"
    hca = subject.environment.get("NCCL_IB_HCA", "")
    if "erdma" in hca:
        return "erdma", f"guessed: NCCL_IB_HCA={hca}"
    packages = {**(found.packages.dpkg if found.packages else {}), **(found.packages.rpm if found.packages else {})}
    for name in ("eadm", "erdma", "libibverbs-erdma"):
        if name in packages:
            return "erdma", f"guessed: the package {name} is installed"
    signs = "no label, no /opt/amazon/efa, no network plugin, no eRDMA tools" if found.tree else "no RDMA device"
    return None, f"nothing speaks for EFA or eRDMA ({signs})"
