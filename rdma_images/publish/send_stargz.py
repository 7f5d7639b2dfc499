"""Publish the converted form of an image beside its original."""

import tempfile
from functools import partial
from pathlib import Path

from rdma_images.core.paths import state_folder
from rdma_images.publish import stargz
from rdma_images.publish.destination import Destination
from rdma_images.publish.publication import StargzImage
from rdma_images.publish.publisher import Publisher
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Manifest, Repository


def publish_stargz(
    original: Manifest,
    original_tag: str,
    destination: Destination,
    repository: Repository,
    publisher: Publisher,
) -> StargzImage:
    """Publish an image once more, converted for the stargz-snapshotter, under a tag of its own.

    An image that has this tag already is kept if it was converted from `original` and, with a signer, carries that
    signer's signature: a later version may convert to other bytes.

    Raises:
        RefusedError: The layers are not compressed with zstd.
        ConflictError: Tags are immutable, and this one has another image.
    """
    stargz.require_zstd(original)
    tag = stargz.stargz_tag(original_tag)
    current = publisher.retry(partial(repository.head, tag))
    if current and publisher.retry(partial(_is_converted, original, current, destination, repository, publisher)):
        return StargzImage(f"{repository.ref}@{current}", tag, "present")
    publisher.display.write_line(f"{destination.name}: converting {original.digest} for the stargz-snapshotter")
    state_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stargz-", dir=state_folder()) as scratch:
        converted = publisher.retry(partial(stargz.convert, original, repository, Path(scratch)))
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
    if original.digest not in stargz.originals(repository.manifest(digest)).values():
        return False
    image_signer = publisher.signing(destination, repository, digest)
    return image_signer is None or image_signer.has_signed(())


def _put_converted(converted: stargz.ConvertedImage, repository: Repository) -> None:
    """Send the layers and manifests of a converted image that the registry lacks, without a tag."""
    for digest, path in converted.files.items():
        repository.put_file(digest, path)
    for manifest in (converted.image, converted.index):
        repository.put_manifest(manifest.digest, manifest)
