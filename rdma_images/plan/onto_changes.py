"""What a plan says of an image that a fabric is added to: what is added, replaced and kept."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rdma_images.components.aws_ofi_nccl import PluginDetails
from rdma_images.components.efa_installer import LIBFABRIC, RDMA_CORE
from rdma_images.components.erdma_apt import NAME as ERDMA
from rdma_images.components.nccl import NAME as NCCL
from rdma_images.core.image import ExistingImage, Image, ImageChange
from rdma_images.facts.fabric_software import AWS_OFI_NCCL as PLUGIN
from rdma_images.facts.fabric_software import EFA_INSTALLER as INSTALLER
from rdma_images.plan import axes


def changes(image: Image, base: ExistingImage) -> Iterator[ImageChange]:
    """Yield what is added to the image `base`, and what of it an installer replaces."""
    if INSTALLER in image.components:
        libfabric = image.components.get(LIBFABRIC.name)
        installed = f"libfabric {libfabric.version}" if libfabric else "libfabric"
        reason = f"{installed}, rdma-core and Open MPI of EFA"
        if base.installer:
            yield ImageChange("replaced", f"EFA installer {base.installer}", f"by {image.version(INSTALLER)}: {reason}")
        else:
            yield ImageChange("added", f"EFA installer {image.version(INSTALLER)}", reason)
    if ERDMA in image.components:
        yield ImageChange("added", f"Alibaba's verbs libraries for {image.version(ERDMA)}", "they know eRDMA's devices")
    if PLUGIN in image.components:
        origin = "compiled on it" if image.details(PluginDetails).origin == "source" else "the installer's"
        plugin, reason = f"aws-ofi-nccl {image.version(PLUGIN)}, {origin}", f"for its NCCL {image.version(NCCL)}"
        if base.installer and base.plugins:
            yield ImageChange("replaced", ", ".join(base.plugins), f"by {plugin}, {reason}")
        else:
            yield ImageChange("added", plugin, reason)
    if image.environment:
        words = " ".join(f"{name}={value}" for name, value in image.environment.items())
        yield ImageChange("added", words, "NCCL ends with an error where the fabric is not there, instead of using TCP")
    parts = [f"{name} {part.version}" for name, part in image.components.items() if name in axes.OPTIONAL]
    for part in (*parts, *image.stages):
        yield ImageChange("added", part, "a part that the target names")
    for package in image.debian_packages:
        yield ImageChange("added", package, "debian-packages of the target")


def replacements(
    base: ExistingImage, environment: Mapping[str, str], hidden: tuple[str, ...], removed_plugins: tuple[str, ...]
) -> Iterator[ImageChange]:
    """Yield what of the image is hidden, removed, or has another value."""
    if base.verbs:
        package = f" {base.verbs_package}" if base.verbs_package else ""
        yield ImageChange("replaced", f"{RDMA_CORE.name}{package}", "the fabric's own has the provider for its devices")
    for folder in hidden:
        yield ImageChange("replaced", f"{folder} on the loader's path", "a library of a fabric, or a plugin, is in it")
    for file in removed_plugins:
        yield ImageChange("replaced", file, "NCCL would find it in the place of the fabric's plugin")
    for name, value in environment.items():
        current = base.environment.get(name)
        if current and name != "PATH" and current != value:
            yield ImageChange("replaced", f"{name}={current}", f"by {value!r}")


def started_as(image: Image, base: ExistingImage) -> Iterator[ImageChange]:
    """Yield the user and the entry point that containers of the image will have."""
    user = image.additions.user if image.additions else None
    if user:
        yield ImageChange("replaced", f"user {base.user or 'root'}", f"by {user.name} ({user.uid}), the target's")
    else:
        yield ImageChange("kept", f"user {base.user or 'root'}", "the target names none")
    entrypoint = image.additions.entrypoint if image.additions else None
    current = f"entry point {shlex.join(base.entrypoint)}" if base.entrypoint else "no entry point"
    if entrypoint is not None:
        yield ImageChange("replaced", current, f"by {shlex.join(entrypoint) or 'none'}, the target's")
    else:
        yield ImageChange("kept", current, "the target names none")


def with_package_changes(image: Image, locked: Mapping[str, str]) -> Image:
    """Return the image with the changes to the Python packages of the image below it.

    Args:
        image: An image to build; one that is not added to another is returned as it is.
        locked: The versions that are installed, by name.
    """
    if image.onto is None:
        return image
    base = image.onto.base
    named = {canonicalize_name(Requirement(text).name) for text in image.python_packages}
    replaced = [
        ImageChange("replaced", f"{name} {current}", f"by {locked[name]}, in {base.python_path}")
        for name, current in base.python_packages.items()
        if name in locked
    ]
    added = {name: version for name, version in locked.items() if name not in base.python_packages}
    why = f"python-packages of the target, for {base.python_path}"
    new = [ImageChange("added", f"{name} {added[name]}", why) for name in added if name in named]
    if brought := ", ".join(f"{name} {version}" for name, version in added.items() if name not in named):
        new.append(ImageChange("added", brought, "required by these packages"))
    others = len(base.python_packages) - len(replaced)
    there = ImageChange("kept", f"{others} Python packages of the image", "they need not change for these")
    kept = [there] if base.python_packages else []
    return replace(image, onto=replace(image.onto, changes=(*image.onto.changes, *new, *replaced, *kept)))
