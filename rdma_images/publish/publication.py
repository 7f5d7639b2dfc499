"""publication.json: the copies of an image in registries, their tags and attachments."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from rdma_images.core.step_files import step_file
from rdma_images.publish.attach import Attachment
from rdma_images.publish.push import LayerTraffic


@dataclass(frozen=True)
class StargzImage:
    """The same image once more, converted for the stargz-snapshotter."""

    ref: str  # "host/repository@sha256:…": the index over it
    tag: str
    result: Literal["pushed", "present"]


@dataclass(frozen=True)
class PublishedCopy:
    """An image in one registry."""

    registry: str  # its name in registries.yaml
    ref: str  # "host/repository@sha256:…", for deployments
    tags: tuple[str, ...]  # the full one (or the build's own) first, then the short ones that lead to it
    result: Literal["pushed", "present"]
    media_type: str
    layers: int
    bytes: int  # of all layers, compressed
    traffic: LayerTraffic
    attached: tuple[Attachment, ...] = ()
    signed_by: str | None = None  # the key's name, "keyless", or None
    created: tuple[str, ...] = ()  # what was created in the registry for it
    finished: str = ""  # ISO 8601, UTC
    stargz: StargzImage | None = None


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
    allowed_failed: tuple[str, ...]
    stand_ins: tuple[str, ...]
    copies: dict[str, PublishedCopy] = field(default_factory=dict)  # by registry name
    schema: int = 1


PUBLICATION = step_file("publication.json", "publish", Publication)


def write(publication: Publication) -> Path:
    """Write publication.json and return its path; copies of the same digest stay in it."""
    earlier_publication = PUBLICATION.read_if_valid(publication.image_id)
    copies = (
        earlier_publication.copies
        if earlier_publication is not None and earlier_publication.digest == publication.digest
        else {}
    )
    return PUBLICATION.write(publication.image_id, replace(publication, copies={**copies, **publication.copies}))
