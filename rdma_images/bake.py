"""The bake file: one graph for all images of a build, so that BuildKit does shared stages once."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rdma_images import paths
from rdma_images.model import Image

Compression = Literal["zstd", "gzip"]

# zstd needs OCI media types, and every layer in them: with Docker's, engines skip the layers' compression and the
# pushed image cannot be pulled ("number of layers and diffIDs don't match"). Level 3 is zstd's own default.
COMPRESSIONS: dict[Compression, str] = {
    "zstd": "compression=zstd,compression-level=3,force-compression=true,oci-mediatypes=true",
    "gzip": "compression=gzip,force-compression=true,oci-mediatypes=true",
}

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
    created: int  # seconds since 1970, what the image says of its own age


@dataclass(frozen=True)
class HelperTarget:
    """A target that images take files from: a bootstrapped base, or a stand-in."""

    name: str
    folder: Path
    inline: str | None = None  # the Dockerfile, where the folder has none
    arguments: Mapping[str, str] = field(default_factory=dict)
    contexts: Mapping[str, str] = field(default_factory=dict)


def name_of(image_id: str) -> str:
    """The name of an image's target in the bake file, whose names have no dots."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", image_id)


def bootstrapped(context: str, base: str, tar: Path) -> HelperTarget:
    """The helper that makes a base from a root file system's tar, for the Dockerfiles' context of that name.

    A helper a context, though they may be equal: buildx 0.13 knows no target that stands behind two contexts of one
    Dockerfile, and BuildKit does equal work once anyway.
    """
    return HelperTarget(name=name_of(f"{context}-{base}"), folder=tar.parent, inline=BOOTSTRAP.format(tar=tar.name))


def bake_file(images: Sequence[ImageTarget], helpers: Sequence[HelperTarget]) -> dict[str, Any]:
    """The content of the bake file.

    Secrets and outputs belong to one run and are not in it, see `run_file`; nor is the network, see `network_file`.
    """
    targets = {name_of(wanted.image.id): _image(wanted) for wanted in images}
    targets |= {helper.name: _helper(helper) for helper in helpers}
    return {"group": {"default": {"targets": [name_of(c.image.id) for c in images]}}, "target": targets}


def run_file(
    bake: Mapping[str, Any], secrets: Mapping[str, Mapping[str, Path]], outputs: Mapping[str, str]
) -> dict[str, Any]:
    """What one run adds to the bake file, by target: the files of its secrets, and where an image goes."""
    return {
        "target": {
            name: {"secret": [f"type=file,id={secret},src={path}" for secret, path in sorted(secrets[name].items())]}
            | ({"output": [outputs[name]]} if name in outputs else {})
            for name in bake["target"]
        }
    }


def output(ref: str, store: str, builder: str | None, compression: Compression) -> str:
    """Where an image goes: into the engine's own store, under `ref`.

    The classic store and a builder of its own hand it over as a docker archive, whose layers are compressed only when
    they are pushed.
    """
    if store == "containerd" and not builder:
        return f"type=image,name={ref},unpack=true,{COMPRESSIONS[compression]}"
    return f"type=docker,name={ref}"


def network_file(bake: Mapping[str, Any]) -> dict[str, Any]:
    """The bake file of an engine without a bridge, whose RUNs use the host's network; to be read before the others.

    In compose's format, because buildx 0.13 reads a target's network from there alone.
    """
    return {
        "services": {
            name: {"build": {"context": target["context"], "network": "host"}}
            for name, target in bake["target"].items()
        }
    }


def text(bake: Mapping[str, Any]) -> str:
    """A bake file as it is written; the same content has the same text."""
    return json.dumps(bake, indent=2) + "\n"


def _image(wanted: ImageTarget) -> dict[str, Any]:
    return {
        "context": _relative(wanted.dockerfile.parent),
        "dockerfile": wanted.dockerfile.name,
        "target": "image",
        "contexts": dict(sorted(wanted.contexts.items())),
        "args": {"SOURCE_DATE_EPOCH": str(wanted.created)},
        "labels": dict(wanted.labels),
        "platforms": [wanted.image.platform],
        "tags": [wanted.ref],
    }


def _helper(helper: HelperTarget) -> dict[str, Any]:
    # Its files go into images; it is none itself, and leaves none behind.
    target: dict[str, Any] = {
        "context": _relative(helper.folder),
        "contexts": dict(helper.contexts),
        "output": ["type=cacheonly"],
    }
    if helper.inline is not None:
        target["dockerfile-inline"] = _literal(helper.inline)
    if helper.arguments:
        target["args"] = dict(helper.arguments)
    return target


def _literal(text: str) -> str:
    """The text as bake takes it for what it is: it looks for templates of its own in every string."""
    return text.replace("${", "$${").replace("%{", "%%{")


def _relative(folder: Path) -> str:
    """The folder as seen from the project, where bake runs; whole where it lies elsewhere."""
    return str(folder.relative_to(paths.PROJECT)) if folder.is_relative_to(paths.PROJECT) else str(folder)
