"""publication.json: where an image is, under which digest and tags, and what is attached to it there."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from rdma_images import atomic
from rdma_images.paths import image_folder
from rdma_images.publish.attach import Attached
from rdma_images.publish.push import Traffic


@dataclass(frozen=True)
class Place:
    """An image in one registry."""

    registry: str  # its name in registries.yaml
    ref: str  # "host/repository@sha256:…": what a deployment should use
    tags: tuple[str, ...]  # the full one (or the build's own) first, then the short ones that lead to it
    result: Literal["pushed", "there"]
    media_type: str
    layers: int
    bytes: int  # of all layers, compressed
    traffic: Traffic
    attached: tuple[Attached, ...] = ()
    signed_by: str | None = None  # the key's name, "keyless", or None
    made: tuple[str, ...] = ()  # what was created in the registry for it
    finished: str = ""  # ISO 8601, UTC


@dataclass(frozen=True)
class Publication:
    """All that a deployment needs to know of a published image."""

    image_id: str
    target: str
    fabric: str
    digest: str
    platform: str
    versions: dict[str, str]  # by component, as planned
    measured: dict[str, str]  # those of them that were measured inside the image
    requires: dict[str, str]  # of the host: {"nvidia-driver": "580.65.06"}
    suite: str
    allowed_red: tuple[str, ...]
    rehearsal: tuple[str, ...]
    places: dict[str, Place] = field(default_factory=dict)  # by registry name
    schema: int = 1


_FORM: TypeAdapter[Publication] = TypeAdapter(Publication)


def path_of(image_id: str) -> Path:
    """Where the publication of an image is written."""
    return image_folder(image_id) / "publication.json"


def load(image_id: str) -> Publication | None:
    """What was published of an image; None where nothing was, or by a version that wrote another form."""
    try:
        return _FORM.validate_json(path_of(image_id).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def write(publication: Publication) -> Path:
    """Write publication.json. What other registries hold of the same digest is kept."""
    before = load(publication.image_id)
    places = dict(before.places) if before is not None and before.digest == publication.digest else {}
    body = asdict(publication) | {"places": {name: asdict(p) for name, p in (places | publication.places).items()}}
    path = path_of(publication.image_id)
    atomic.write(path, json.dumps(body, indent=2) + "\n")
    return path
