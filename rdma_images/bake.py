"""The bake file: one graph for all images of a build, so that BuildKit does shared stages once."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rdma_images import paths
from rdma_images.model import Image

# zstd needs OCI media types, and every layer in them: with Docker's, engines skip the layers' compression and the pushed
# image cannot be pulled ("number of layers and diffIDs don't match"). Level 3 is zstd's own default.
COMPRESSION = "compression=zstd,compression-level=3,force-compression=true,oci-mediatypes=true"

# Base system from a bootstrapped root file system: nothing but the files, so that its layer is the tar's own.
BOOTSTRAP = "FROM scratch\nADD {tar} /\n"


@dataclass(frozen=True)
class Course:
    """One image in the bake file."""

    image: Image
    dockerfile: Path
    ref: str
    contexts: Mapping[str, str]  # of the names that the Dockerfile uses: "base", "builder", "efa-installer"
    labels: Mapping[str, str]
    created: int  # seconds since 1970, what the image says of its own age


@dataclass(frozen=True)
class Helper:
    """A target that images take files from: a bootstrapped base, or a stand-in."""

    name: str
    folder: Path
    inline: str | None = None  # the Dockerfile, where the folder has none
    arguments: Mapping[str, str] = field(default_factory=dict)
    contexts: Mapping[str, str] = field(default_factory=dict)


def name_of(image_id: str) -> str:
    """The name of an image's target in the bake file, whose names have no dots."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", image_id)


def bootstrapped(context: str, base: str, tar: Path) -> Helper:
    """The helper that makes a base from a root file system's tar, for the Dockerfiles' context of that name.

    A helper a context, though they may be equal: buildx 0.13 knows no target that stands behind two contexts of one
    Dockerfile, and BuildKit does equal work once anyway.
    """
    return Helper(name=name_of(f"{context}-{base}"), folder=tar.parent, inline=BOOTSTRAP.format(tar=tar.name))


def bake_file(courses: Sequence[Course], helpers: Sequence[Helper]) -> dict[str, Any]:
    """The content of the bake file.

    Secrets and outputs belong to one run and are not in it, see `run_file`; nor is the network, see `network_file`.
    """
    targets = {name_of(course.image.id): _course(course) for course in courses}
    targets |= {helper.name: _helper(helper) for helper in helpers}
    return {"group": {"default": {"targets": [name_of(c.image.id) for c in courses]}}, "target": targets}


def run_file(bake: Mapping[str, Any], secrets: Mapping[str, Path], outputs: Mapping[str, str]) -> dict[str, Any]:
    """What one run adds to the bake file: the secrets' files for every target, and where each image goes."""
    secret = [f"type=file,id={name},src={path}" for name, path in sorted(secrets.items())]
    return {
        "target": {
            name: {"secret": secret} | ({"output": [outputs[name]]} if name in outputs else {})
            for name in bake["target"]
        }
    }


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


def _course(course: Course) -> dict[str, Any]:
    return {
        "context": _relative(course.dockerfile.parent),
        "dockerfile": course.dockerfile.name,
        "target": "image",
        "contexts": dict(sorted(course.contexts.items())),
        "args": {"SOURCE_DATE_EPOCH": str(course.created)},
        "labels": dict(course.labels),
        "platforms": [course.image.platform],
        "tags": [course.ref],
    }


def _helper(helper: Helper) -> dict[str, Any]:
    # Its files go into images; it is none itself, and leaves none behind.
    target: dict[str, Any] = {
        "context": _relative(helper.folder),
        "contexts": dict(helper.contexts),
        "output": ["type=cacheonly"],
    }
    if helper.inline is not None:
        target["dockerfile-inline"] = helper.inline
    if helper.arguments:
        target["args"] = dict(helper.arguments)
    return target


def _relative(folder: Path) -> str:
    """The folder as seen from the project, where bake runs; whole where it lies elsewhere."""
    return str(folder.relative_to(paths.PROJECT)) if folder.is_relative_to(paths.PROJECT) else str(folder)
