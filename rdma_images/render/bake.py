"""Write the bake file: one graph for all images of a build, so that BuildKit does shared stages once."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rdma_images.core import paths
from rdma_images.core.compression import COMPRESSIONS, Compression
from rdma_images.core.image import Image
from rdma_images.engine import platforms

# Stages of a Dockerfile: the layer of all but the wheels; and the two that contexts of these names replace.
SYSTEM, WHEELS, DEVEL = "system-layer", "wheels", "devel-files"

# Base system from a bootstrapped root file system: nothing but the files, so that its layer is the tar's own.
BOOTSTRAP = "FROM scratch\nADD {tar} /\n"


@dataclass(frozen=True)
class ImageTarget:
    """One image in the bake file."""

    image: Image
    dockerfile: Path
    ref: str
    contexts: Mapping[str, str]  # of the names that the Dockerfile uses: "base", "builder", "efa-installer"
    labels: Mapping[str, str]
    created: int  # seconds since 1970, for the image's `created`


@dataclass(frozen=True)
class HelperTarget:
    """A target that images take files from: a bootstrapped base, or a stand-in."""

    name: str
    folder: Path
    platform: str = ""  # of the images that take its files; written where it is not this machine's own
    inline: str | None = None  # the Dockerfile, where the folder has none
    arguments: Mapping[str, str] = field(default_factory=dict)
    contexts: Mapping[str, str] = field(default_factory=dict)


def bake_target_name(image_id: str) -> str:
    """Return the short name of an image's target in the build's output."""
    target = re.split(r"-\d", image_id, maxsplit=1)[0]
    return f"{bake_name(target)}-{hashlib.sha256(image_id.encode()).hexdigest()[:6]}"


def bake_name(name: str) -> str:
    """Return a name as the bake file may have it: without dots."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)


def bootstrap_helper(context: str, base: str, tar: Path, platform: str = "") -> HelperTarget:
    """Return the bake target that makes a base of a root file system's tar.

    One helper for each context, also where two are equal: buildx 0.13 does not support one target behind two contexts
    of a Dockerfile, and BuildKit does equal work once anyway.
    """
    architecture = f"-{platform.rpartition('/')[2]}" if platforms.is_foreign(platform) else ""
    name = bake_name(f"{context}-{base}{architecture}")
    return HelperTarget(name, tar.parent, platform, BOOTSTRAP.format(tar=tar.name))


def bake_file(images: Sequence[ImageTarget], helpers: Sequence[HelperTarget]) -> dict[str, Any]:
    """Return the content of the bake file.

    Secrets and outputs belong to one run, see `with_run`; the network is in a file of its own, see `network_file`.
    """
    targets = {bake_target_name(target.image.id): _image(target) for target in images}
    names = list(targets)
    targets |= {helper.name: _helper(helper) for helper in helpers}
    return {"group": {"default": {"targets": names}}, "target": targets}


def source_stage(package: str) -> str:
    """Return the name of the stage with a compiled package's wheel."""
    return f"source-{package}"


def stage_file(bake: Mapping[str, Any], ids: Sequence[str], stage: str) -> dict[str, Any]:
    """Return the bake file that builds only one stage of the images `ids`."""
    images = bake["group"]["default"]["targets"]
    helpers = {name: target for name, target in bake["target"].items() if name not in images}
    names = [bake_target_name(image_id) for image_id in ids]
    stages = {name: {**bake["target"][name], "target": stage, "tags": []} for name in names}
    return {"group": {"default": {"targets": names}}, "target": helpers | stages}


def with_contexts(bake: Mapping[str, Any], contexts: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the bake file with more contexts for its images: `contexts` by image id."""
    by_target = {bake_target_name(image_id): added for image_id, added in contexts.items()}
    targets = {
        name: {**target, "contexts": {**target["contexts"], **by_target.get(name, {})}}
        for name, target in bake["target"].items()
    }
    return {**bake, "target": targets}


def with_run(
    bake: Mapping[str, Any], secrets: Mapping[str, Mapping[str, Path]], outputs: Mapping[str, str]
) -> dict[str, Any]:
    """Return the bake file with what belongs to one run: secrets and outputs by target."""
    targets = {
        name: target
        | {"secret": [f"type=file,id={secret},src={path}" for secret, path in sorted(secrets[name].items())]}
        | ({"output": [outputs[name]]} if name in outputs else {})
        for name, target in bake["target"].items()
    }
    return {**bake, "target": targets}


def bake_output(ref: str, store: str, builder: str | None, compression: Compression, keeps_layers: bool = False) -> str:
    """Return the output of an image: the engine's own store, under `ref`.

    From another builder it comes as an archive, for the containerd store with the layers as they will be pushed: those
    of wheels that the builder took from a registry keep their digests. Without the compression's name they would be in
    Docker's media types, and the engine refuses such an archive ("mismatched image rootfs and manifest layers"). For
    the classic store it is a docker archive, whose layers are compressed only by a push. With `keeps_layers`, those of
    the image below stay as they are compressed: nodes that have them pull none of them again.
    """
    if store != "containerd":
        return f"type=docker,name={ref}"
    kind = "type=docker" if builder else "type=image,unpack=true"
    options = COMPRESSIONS[compression]
    if keeps_layers:
        options = options.replace(",force-compression=true", "")
    return f"{kind},name={ref},{options}"


def network_file(bake: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bake file of an engine without a bridge: RUNs use the host's network.

    In compose's format, the only one from which buildx 0.13 reads a target's network.
    """
    return {
        "services": {
            name: {"build": {"context": target["context"], "network": "host"}}
            for name, target in bake["target"].items()
        }
    }


def _image(target: ImageTarget) -> dict[str, Any]:
    """Return an image as a target of bake."""
    return {
        "context": paths.display_path(target.dockerfile.parent),
        "dockerfile": target.dockerfile.name,
        "target": "image",
        "contexts": dict(sorted(target.contexts.items())),
        "args": {"SOURCE_DATE_EPOCH": str(target.created)},
        "labels": dict(target.labels),
        "platforms": [target.image.platform],
        "tags": [target.ref],
    }


def _helper(helper: HelperTarget) -> dict[str, Any]:
    """Return a helper, whose files go into images, as a target of bake."""
    target: dict[str, Any] = {
        "context": paths.display_path(helper.folder),
        "contexts": dict(helper.contexts),
        "output": ["type=cacheonly"],  # it leaves no image in the engine
    }
    if platforms.is_foreign(helper.platform):
        target["platforms"] = [helper.platform]
    if helper.inline is not None:
        target["dockerfile-inline"] = helper.inline.replace("${", "$${").replace("%{", "%%{")  # which bake expands
    if helper.arguments:
        target["args"] = dict(helper.arguments)
    return target
