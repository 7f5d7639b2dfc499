"""Publish an image once more, converted for containerd's stargz-snapshotter: each layer has a table of contents.

The wheels' layers have theirs from the build. The others, above all the system's, are written once more from the same
tar: their blobs have other digests, and the config of the image stays as it is.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import zstandard

from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND, state_folder
from rdma_images.layers import seekable_layer, tar_layer
from rdma_images.layers.blob import Blob
from rdma_images.publish.destination import Destination
from rdma_images.publish.publication import StargzImage
from rdma_images.publish.publisher import Publisher
from rdma_images.registry import client, registry_errors
from rdma_images.registry.client import Descriptor, Manifest, Repository, canonical

# On the converted image's entry in the index: the digest of the image that was built, validated and published.
CONVERTED_FROM = "io.rdma-images.converted-from"


@dataclass(frozen=True)
class ConvertedImage:
    """A converted image: all of it that the original does not have."""

    index: Manifest
    image: Manifest  # which `index` lists
    files: Mapping[str, Path]  # the layers that were written again, by digest


def publish_stargz(
    original: Manifest, original_tag: str, destination: Destination, repository: Repository, publisher: Publisher
) -> StargzImage:
    """Publish an image once more, converted for the stargz-snapshotter, under a tag of its own.

    An image that has this tag already is kept if it was converted from `original` and, with a signer, carries that
    signer's signature: a later version may convert to other bytes.

    Raises:
        RefusedError: The layers are not compressed with zstd.
        ConflictError: Tags are immutable, and this one has another image.
    """
    require_zstd(original)
    tag = f"{original_tag}-stargz"
    current = publisher.retry(partial(repository.find_digest, tag))
    if current and publisher.retry(partial(_is_converted, original, current, destination, repository, publisher)):
        return StargzImage(f"{repository.ref}@{current}", tag, "present")
    publisher.progress(f"{destination.name}: converting {original.digest} for the stargz-snapshotter")
    state_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stargz-", dir=state_folder()) as scratch:
        converted = publisher.retry(partial(convert, original, repository, Path(scratch)))
        if current and current != converted.index.digest and destination.immutable:
            raise registry_errors.ConflictError(
                f"{repository.ref}:{tag} is {current}, not signed by this signer, and tags are immutable there\n"
                "have it deleted in the registry, and publish again"
            )
        publisher.retry(partial(_put_converted, converted, repository))
    publisher.sign_index(destination, repository, converted.index.digest)
    publisher.retry(partial(repository.put_manifest, tag, converted.index))
    return StargzImage(f"{repository.ref}@{converted.index.digest}", tag, "pushed")


def _is_converted(
    original: Manifest, digest: str, destination: Destination, repository: Repository, publisher: Publisher
) -> bool:
    """Return whether the index `digest` leads to `original`, converted by this signer."""
    if original.digest not in originals(repository.manifest(digest)).values():
        return False
    image_signer = publisher.signing(destination, repository, digest)
    return image_signer is None or image_signer.has_signed(())


def _put_converted(converted: ConvertedImage, repository: Repository) -> None:
    """Send the layers and manifests of a converted image that the registry lacks, without a tag."""
    for digest, path in converted.files.items():
        repository.put_file(digest, path)
    for manifest in (converted.image, converted.index):
        repository.put_manifest(manifest.digest, manifest)


def convert(original: Manifest, repository: Repository, scratch: Path) -> ConvertedImage:
    """Return the image `original` of `repository` with a table of contents in each layer.

    Args:
        repository: Where it was published.
        scratch: An empty folder. The caller removes it.

    Raises:
        TarError: A layer cannot have a table.
        RegistryError: The registry does not send a layer, or one does not unpack.
    """
    layers, files = [], {}
    for layer in original.layers():
        if seekable_layer.ANNOTATION not in layer.annotations:
            path = scratch / layer.digest
            blob = _write_with_table(repository, layer, scratch, path)
            annotations = {**layer.annotations, **blob.annotations}
            layer = replace(layer, digest=blob.digest, size=blob.size, annotations=annotations)
            files[layer.digest] = path
        layers.append(layer)
    body = {**original.body, "layers": [layer.as_json() for layer in layers]}
    image = Manifest(original.media_type, canonical(body))
    config = repository.config(original)
    platform = {name: value for name, value in config.items() if name in ("os", "architecture", "variant")}
    entry = replace(image.descriptor, platform=platform, annotations={CONVERTED_FROM: original.digest})
    return ConvertedImage(client.index_manifest([entry]), image, files)


def _write_with_table(repository: Repository, layer: Descriptor, scratch: Path, path: Path) -> Blob:
    """Download a layer into `scratch`, and write it with a table to `path`."""
    packed = scratch / "layer"
    repository.save_blob(layer.digest, packed)
    with tempfile.TemporaryFile(dir=scratch) as tar, packed.open("rb") as file, path.open("wb") as converted:
        try:
            zstandard.ZstdDecompressor().copy_stream(file, tar)
        except zstandard.ZstdError as error:
            raise registry_errors.MalformedError(f"{layer.digest} does not unpack: {error}") from None
        return tar_layer.write(tar, converted)


def require_zstd(manifest: Manifest) -> None:
    """Raise RefusedError for layers of another compression, which have no table."""
    types = sorted({layer.media_type for layer in manifest.layers() if not layer.media_type.endswith("zstd")})
    if types:
        raise RefusedError(
            f"--stargz reads layers of zstd alone, and {manifest.digest} has {', '.join(types)}\n"
            f"build it with `{COMMAND} build --compression zstd`"
        )


def originals(index: Manifest) -> dict[str, str]:
    """Return each converted image's digest in `index` with its original's."""
    sources = {entry.digest: entry.annotations.get(CONVERTED_FROM) for entry in index.members()}
    return {digest: source for digest, source in sources.items() if source}
