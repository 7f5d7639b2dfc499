"""Conversion of an image for nodes that read it in part, and its link to the original."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.engine import Engine
from rdma_images.registry import client
from rdma_images.registry.client import Descriptor, Manifest, Repository

# On the converted image's entry in the index: the digest of the image that was built, validated and published.
CONVERTED_FROM = "io.rdma-images.converted-from"
LazyForm = Literal["soci", "stargz"]  # the snapshotter that reads it
_SUFFIXES = ("-soci", "-stargz")
# The compression of the layers that each snapshotter reads in part.
_COMPRESSIONS: Mapping[LazyForm, str] = {"soci": "gzip", "stargz": "zstd"}


@dataclass(frozen=True)
class ConvertedImage:
    """A converted image: all of it that the original does not have."""

    index: Manifest
    manifests: tuple[Manifest, ...]  # which `index` lists
    blobs: tuple[bytes, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)  # larger blobs, by digest


class Converter(Protocol):
    """Converts images for one snapshotter."""

    @property
    def form(self) -> LazyForm:
        """Return the snapshotter."""

    @property
    def title(self) -> str:
        """Return what converts, with its version."""

    def convert(
        self, original: Manifest, repository: Repository, engine: Callable[[], Engine], scratch: Path
    ) -> ConvertedImage:
        """Return the image `original` of `repository`, converted.

        Args:
            original: The image's manifest.
            repository: Where it was published.
            engine: Gives an engine that has it.
            scratch: An empty folder. The caller removes it.

        Raises:
            PublishError: The conversion failed, or made something else.
        """


def require_convertible(form: LazyForm, manifest: Manifest) -> None:
    """Raise RefusedError for layers whose compression `form` cannot read in part."""
    compression = _COMPRESSIONS[form]
    types = sorted({layer.media_type for layer in manifest.layers() if not layer.media_type.endswith(compression)})
    if types:
        (other_form,) = _COMPRESSIONS.keys() - {form}
        raise RefusedError(
            f"--lazy {form} reads layers of {compression} alone, and {manifest.digest} has {', '.join(types)}\n"
            f"build it with `{COMMAND} build --compression {compression}`, or publish it with --lazy {other_form}"
        )


def index_over(image: Descriptor, original: Manifest, *more_entries: Descriptor) -> Manifest:
    """Return the index of a converted image, whose entry names the original."""
    return client.index(
        [replace(image, annotations={**image.annotations, CONVERTED_FROM: original.digest}), *more_entries]
    )


def lazy_tag(tag: str, form: LazyForm) -> str:
    """Return the tag of a converted image beside the one of its original."""
    return f"{tag}-{form}"


def original_tag(tag: str) -> str:
    """Return the tag of the original of a converted image; other references as they are."""
    for suffix in _SUFFIXES:
        tag = tag.removesuffix(suffix)
    return tag


def originals(index: Manifest) -> dict[str, str]:
    """Return the originals' digests by those of the converted images in `index`."""
    sources = {entry.digest: entry.annotations.get(CONVERTED_FROM) for entry in index.members()}
    return {digest: source for digest, source in sources.items() if source}
