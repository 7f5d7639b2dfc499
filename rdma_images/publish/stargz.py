"""Convert an image for containerd's stargz-snapshotter: add tables of contents.

The wheels' layers have theirs from the build. The others, above all the system's, are written once more from the same
tar: their blobs have other digests, and the config of the image stays as it is.
"""

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import zstandard

from rdma_images.core.errors import RefusedError, first_line
from rdma_images.core.paths import COMMAND, state_folder
from rdma_images.core.sizes import format_bytes
from rdma_images.layers import seekable_layer, tar_layer
from rdma_images.layers.blob import CHUNK, Blob
from rdma_images.registry import client, registry_errors
from rdma_images.registry.client import Descriptor, Manifest, Repository, canonical, config_diff_ids

_MAX_RATIO = 100  # of a tar to its compressed bytes; the system's layer has 4. More is a mistake, or an attack


# On the converted image's entry in the index: the digest of the image that was built, validated and published.
CONVERTED_FROM = "io.rdma-images.converted-from"
_SUFFIX = "-stargz"


@dataclass(frozen=True)
class ConvertedImage:
    """A converted image: all of it that the original does not have."""

    index: Manifest
    image: Manifest  # which `index` lists
    files: Mapping[str, Path]  # the layers that were written again, by digest


def convert(original: Manifest, repository: Repository, scratch: Path) -> ConvertedImage:
    """Return the image `original` of `repository` with a table of contents in each layer.

    Args:
        original: The image's manifest.
        repository: Where it was published.
        scratch: An empty folder. The caller removes it.

    Raises:
        RegistryError: A layer cannot have a table.
    """
    layers, files = [], {}
    for layer, diff_id in zip(original.layers(), _diff_ids(repository, original), strict=True):
        if seekable_layer.ANNOTATION not in layer.annotations:
            path = scratch / layer.digest
            try:
                blob = _write_with_table(repository, layer, diff_id, scratch, path)
            except tar_layer.TarError as error:
                raise registry_errors.RegistryError(f"{original.digest}: {error}") from None
            annotations = {**layer.annotations, **blob.annotations}
            layer = replace(layer, digest=blob.digest, size=blob.size, annotations=annotations)
            files[layer.digest] = path
        layers.append(layer)
    body = {**original.body, "layers": [layer.as_json() for layer in layers]}
    image = Manifest(original.media_type, canonical(body))
    config = repository.config(original)
    platform = {name: value for name, value in config.items() if name in ("os", "architecture", "variant")}
    entry = replace(image.descriptor, platform=platform, annotations={CONVERTED_FROM: original.digest})
    return ConvertedImage(client.index([entry]), image, files)


def require_zstd(manifest: Manifest) -> None:
    """Raise RefusedError for layers of another compression, which have no table."""
    types = sorted({layer.media_type for layer in manifest.layers() if not layer.media_type.endswith("zstd")})
    if types:
        raise RefusedError(
            f"--stargz reads layers of zstd alone, and {manifest.digest} has {', '.join(types)}\n"
            f"build it with `{COMMAND} build --compression zstd`"
        )


def stargz_tag(tag: str) -> str:
    """Return the tag of a converted image beside the one of its original."""
    return f"{tag}{_SUFFIX}"


def original_tag(tag: str) -> str:
    """Return the tag of the original of a converted image; other references as they are."""
    return tag.removesuffix(_SUFFIX)


def originals(index: Manifest) -> dict[str, str]:
    """Return the originals' digests by those of the converted images in `index`."""
    sources = {entry.digest: entry.annotations.get(CONVERTED_FROM) for entry in index.members()}
    return {digest: source for digest, source in sources.items() if source}


def compare(repository: Repository, converted: Manifest, original: Manifest) -> tuple[bool, str]:
    """Return whether a converted image has the content of its original, and a sentence about it.

    A layer of another digest is downloaded: its tar has to be the one that the config names, and its table has to be
    of that tar. A node that reads in part sees only the table.
    """
    configs = [Descriptor.from_json(manifest.body.get("config")).digest for manifest in (converted, original)]
    layers = converted.layers()
    sources = dict(enumerate(map(_content, original.layers())))
    changed = [position for position, layer in enumerate(layers) if _content(layer) != sources.get(position)]
    if configs[0] != configs[1] or len(layers) != len(sources):
        return False, "has other content"
    if not changed:
        return True, "has the same config and layers"
    try:
        diff_ids = _diff_ids(repository, converted)
        for position in changed:
            _check_layer(repository, layers[position], diff_ids[position])
    except _MISMATCHES as error:
        return False, f"has other content: {first_line(error)}"
    return True, f"has the same config; {len(changed)} of its {len(layers)} layers have a table, and the same tar"


_MISMATCHES = (
    tar_layer.TarError,
    registry_errors.MalformedError,
    registry_errors.MissingError,
    registry_errors.ConflictError,
    ValueError,
)


def _content(layer: Descriptor) -> tuple[str, str]:
    """Return the digests of a layer and of its table of contents."""
    return layer.digest, layer.annotations.get(seekable_layer.ANNOTATION, "")


def _check_layer(repository: Repository, layer: Descriptor, diff_id: str) -> None:
    """Raise one of _MISMATCHES where a layer differs from its table or from the config."""
    state_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stargz-", dir=state_folder()) as scratch:
        rewritten = Path(scratch) / "rewritten"
        _write_with_table(repository, layer, diff_id, Path(scratch), rewritten)
        with (Path(scratch) / "layer").open("rb") as packed_file, rewritten.open("rb") as rewritten_file:
            table = seekable_layer.read_table(packed_file)
            if table.digest != layer.annotations.get(seekable_layer.ANNOTATION):
                raise ValueError(f"{layer.digest} has another table than the image names")
            if not table.has_same_files(seekable_layer.read_table(rewritten_file)):
                raise ValueError(f"{layer.digest} has a table that is not of its files")


def _diff_ids(repository: Repository, image: Manifest) -> tuple[str, ...]:
    """Return the layers' diff ids. Raises MalformedError where their number differs."""
    diff_ids = config_diff_ids(repository.config(image))
    if len(image.layers()) != len(diff_ids):
        raise registry_errors.MalformedError(
            f"{repository.ref}@{image.digest}: its config names {len(diff_ids)} layers"
        )
    return diff_ids


def _write_with_table(repository: Repository, layer: Descriptor, diff_id: str, scratch: Path, path: Path) -> Blob:
    """Write a layer with a table into a file; the layer itself stays in `scratch` as `layer`.

    Raises RegistryError where the registry does not send it, and where its tar is not the one named `diff_id`.
    """
    packed = scratch / "layer"
    packed.unlink(missing_ok=True)
    repository.save(layer.digest, packed, threading.Event())
    with _unpack(packed, layer) as tar, path.open("wb") as file:
        blob = tar_layer.write(tar, file)
    if blob.diff_id != diff_id:
        raise registry_errors.MalformedError(
            f"{layer.digest} has the tar {blob.diff_id}, and the config names {diff_id}"
        )
    return blob


@contextmanager
def _unpack(packed: Path, layer: Descriptor) -> Iterator[IO[bytes]]:
    """Yield the tar of a layer. Raises MalformedError for one that does not unpack."""
    limit = layer.size * _MAX_RATIO
    with tempfile.TemporaryFile(dir=packed.parent) as tar, packed.open("rb") as file:
        try:
            with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream:
                while chunk := stream.read(CHUNK):
                    tar.write(chunk)
                    if tar.tell() > limit:
                        raise registry_errors.MalformedError(
                            f"{layer.digest} unpacks to more than {format_bytes(limit)}"
                        )
        except zstandard.ZstdError as error:
            raise registry_errors.MalformedError(f"{layer.digest} does not unpack: {error}") from None
        yield tar
