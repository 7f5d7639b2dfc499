"""The fabric that an image is for: the plan's, else its label's, else the one that its content shows."""

import re
from collections.abc import Callable
from typing import NamedTuple

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


class Sign(NamedTuple):
    """A sign of a fabric. `find` returns what shows it, "" for nothing; `sentence` has a place for that."""

    find: Callable[[ImageConfig, Measured], str]
    fabric: Fabric
    sentence: str


def guess_fabric(image_config: ImageConfig, measured: Measured) -> tuple[Fabric | None, str]:
    """Return a fabric and how it was guessed, from the strongest sign to the weakest."""
    for sign in SIGNS:
        if found := sign.find(image_config, measured):
            return sign.fabric, f"guessed: {sign.sentence.format(found)}"
    signs = "no label, no /opt/amazon/efa, no network plugin, no eRDMA tools" if measured.tree else "no RDMA device"
    return None, f"no sign of EFA or eRDMA ({signs})"


def _device(measured: Measured, fabric: Fabric) -> str:
    return next(iter(measured.devices.of_fabric(fabric) if measured.devices else ()), "")


def _file(measured: Measured, is_meant: Callable[[str], bool]) -> str:
    """Return the first library or tool of the image whose path is meant."""
    return next(filter(is_meant, measured.tree.files.library_files if measured.tree else ()), "")


def _plugin_to_libfabric(_: ImageConfig, measured: Measured) -> str:
    """Return the image's plugin that brings NCCL to libfabric, or the one that it starts on a machine with GPUs.

    One for another provider, such as Slingshot's cxi, needs libfabric, too, and has no AWS platform.
    """
    has_libefa = _file(measured, lambda path: base_name(path).startswith("libefa.so"))
    for path, plugin in (measured.tree.libraries.plugins if measured.tree else {}).items():
        to_libfabric = "libfabric.so.1" in plugin.needed or "ofi" in base_name(path)
        if plugin.aws_platform or (to_libfabric and has_libefa):
            return path
    return measured.gpus.network.plugin if measured.gpus else ""


def _packages(measured: Measured) -> dict[str, str]:
    """Return the versions of Debian's and RPM's packages by name."""
    return {**measured.packages.dpkg, **measured.packages.rpm} if measured.packages else {}


def _erdma_setting(image_config: ImageConfig, _: Measured) -> str:
    hca = image_config.environment.get("NCCL_IB_HCA", "")
    return hca if "erdma" in hca else ""


def _erdma_package(_: ImageConfig, measured: Measured) -> str:
    return next((name for name in ("eadm", "erdma", "libibverbs-erdma") if name in _packages(measured)), "")


def _alibaba_package(_: ImageConfig, measured: Measured) -> str:
    packages = _packages(measured)
    names = ("ibverbs-providers", "libibverbs", "libibverbs1")
    return next((f"{name} {packages[name]}" for name in names if ALIBABA_VERSION.search(packages.get(name, ""))), "")


SIGNS = (
    Sign(lambda _, measured: _device(measured, "efa"), "efa", "the machine has {}"),
    Sign(lambda _, measured: _device(measured, "erdma"), "erdma", "the machine has {}"),
    Sign(
        lambda _, measured: _file(measured, lambda path: path.startswith("/opt/amazon/efa/")),
        "efa",
        "the EFA installer was here ({})",
    ),
    Sign(
        lambda _, measured: measured.packages.efa_installer if measured.packages else "",
        "efa",
        "the EFA installer {} was here",
    ),
    Sign(_plugin_to_libfabric, "efa", "{} brings NCCL to libfabric"),
    Sign(_erdma_setting, "erdma", "NCCL_IB_HCA={}"),
    Sign(_erdma_package, "erdma", "the package {} is installed"),
    Sign(_alibaba_package, "erdma", "{} is Alibaba's"),
    Sign(
        lambda _, measured: _file(measured, lambda path: base_name(path) == "eadm"),
        "erdma",
        "Alibaba's tool for eRDMA is here ({})",
    ),
)
