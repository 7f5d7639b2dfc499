"""The fabric that an image is for: the plan's, else its label's, else the one that its content shows."""

import re
from collections.abc import Iterator

from rdma_images.core.image import Fabric, Image
from rdma_images.inspection.inspection import Expected, ImageConfig, base_name
from rdma_images.inspection.measurements import Measured

ERDMA_PACKAGES = ("eadm", "erdma", "libibverbs-erdma")
VERBS_PACKAGES = ("ibverbs-providers", "libibverbs", "libibverbs1")
# Of Alibaba's packages: ibverbs-providers 56.2-1.0.3 for jammy, in a third party's record of August 2026. Those of
# distributions are such as 50.0-2ubuntu0.2.
ALIBABA_VERSION = re.compile(r"^\d+\.\d+-\d+\.\d+\.\d+$")


def image_expectations(image_config: ImageConfig, measured: Measured, image: Image | None) -> Expected:
    """Return what the image must have.

    If nothing indicates a fabric, no fabric is expected, and its checks are not run.
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
    """Return the fabric of the strongest sign, and how it was guessed."""
    for fabric, sign in _signs(image_config, measured):
        return fabric, f"guessed: {sign}"
    signs = "no label, no /opt/amazon/efa, no network plugin, no eRDMA tools" if measured.tree else "no RDMA device"
    return None, f"no sign of EFA or eRDMA ({signs})"


def _signs(image_config: ImageConfig, measured: Measured) -> Iterator[tuple[Fabric, str]]:
    """Yield the fabric and the sentence of each sign, from the strongest to the weakest."""
    if devices := measured.devices:
        yield from (("efa", f"the machine has {name}") for name in devices.of_fabric("efa"))
        yield from (("erdma", f"the machine has {name}") for name in devices.of_fabric("erdma"))
    files = measured.tree.files.library_files if measured.tree else {}
    installed = measured.packages
    packages = {**installed.dpkg, **installed.rpm} if installed else {}
    hca = image_config.environment.get("NCCL_IB_HCA", "")
    yield from (
        ("efa", f"the EFA installer was here ({path})") for path in files if path.startswith("/opt/amazon/efa/")
    )
    if installed and installed.efa_installer:
        yield "efa", f"the EFA installer {installed.efa_installer} was here"
    yield from (("efa", f"{plugin} brings NCCL to libfabric") for plugin in _plugins_to_libfabric(measured))
    if "erdma" in hca:
        yield "erdma", f"NCCL_IB_HCA={hca}"
    yield from (("erdma", f"the package {name} is installed") for name in ERDMA_PACKAGES if name in packages)
    for name in VERBS_PACKAGES:
        if ALIBABA_VERSION.search(packages.get(name, "")):
            yield "erdma", f"{name} {packages[name]} is Alibaba's"
    yield from (("erdma", f"Alibaba's tool for eRDMA is here ({path})") for path in files if base_name(path) == "eadm")


def _plugins_to_libfabric(measured: Measured) -> Iterator[str]:
    """Yield the plugins of the image that bring NCCL to libfabric, then the one that starts on a machine with GPUs.

    A plugin for another provider, such as Slingshot's cxi, also needs libfabric, and has no AWS platform.
    """
    if tree := measured.tree:
        has_libefa = any(base_name(path).startswith("libefa.so") for path in tree.files.library_files)
        for path, plugin in tree.libraries.plugins.items():
            to_libfabric = "libfabric.so.1" in plugin.needed or "ofi" in base_name(path)
            if plugin.aws_platform or (to_libfabric and has_libefa):
                yield path
    if measured.gpus and measured.gpus.network.plugin:
        yield measured.gpus.network.plugin
