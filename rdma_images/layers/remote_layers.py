"""Layers in a registry: those that it has are not downloaded as wheels, made or sent; builders pull them from there.

A layer whose digest is locked is found by it, whoever brought it there. Any other is under a tag with its recipe's key.
An image of layers is under a tag with the key of them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import megabytes
from rdma_images.layers import digests, store
from rdma_images.layers.blob import Blob
from rdma_images.layers.digests import Digests
from rdma_images.layers.image import LayerImage, layer_image
from rdma_images.layers.load import Brought, Wanted, check
from rdma_images.layers.make import Maker
from rdma_images.layers.recipe import Recipe
from rdma_images.layers.store import Layer
from rdma_images.registry import faults
from rdma_images.registry.client import Manifest, Repository

ATTEMPTS, FIRST_WAIT = 4, 1.0  # seconds


@dataclass(frozen=True)
class Resident:
    """What a registry has of the layers of one image's wheels."""

    wanted: Wanted
    whole: str | None  # the digest of the image of all of them, where that is there
    blobs: dict[str, Blob]  # by the recipe's key

    @property
    def missing(self) -> tuple[Recipe, ...]:
        """The layers that are to be made."""
        return () if self.whole else tuple(one for one in self.wanted.recipes if one.key not in self.blobs)

    @property
    def diff_ids(self) -> set[str]:
        """The diff ids of the layers that it has."""
        return {blob.diff_id for blob in self.blobs.values()}


def look(wanted: Wanted, repository: Repository, locked: Digests = digests.NONE) -> Resident:
    """Ask a registry what it has.

    Raises RdmaImagesError where it does not answer, or has another layer than is locked or here.
    """
    recipes = wanted.recipes
    image = _manifest(repository, wanted.tag)
    blobs = {}
    if image is not None:
        blobs = dict(zip((one.key for one in recipes), _blobs(repository, image, len(recipes)), strict=True))
    else:
        for recipe in recipes:
            if found := _one(recipe, wanted.part, repository, locked):
                blobs[recipe.key] = found
    for recipe in recipes:
        there, right, where = blobs.get(recipe.key), locked.blob(recipe, wanted.part), f"locks/{digests.NAME} has"
        if right is None and (here := store.find(recipe)):
            right, where = here.blob(wanted.part), "this machine made"
        if there and right and there != right:
            raise RdmaImagesError(
                f"{repository.ref}: {recipe.name} is {there.digest} there, but of the same wheels {where} "
                f"{right.digest}\nfind out who wrote it, and delete the tag "
                f"{wanted.tag if image else _tag(recipe, wanted.part)} there; or build without --cache-layers"
            )
    # Only an image that is ours to the byte: settings in its config would be those of what is built on it.
    is_ours = image is not None and _whole(wanted, blobs).manifest.digest == image.digest
    return Resident(wanted, image.digest if image and is_ours else None, blobs)


def complete(found: Resident, maker: Maker, repository: Repository, progress: Progress = silent) -> Brought:
    """Send what is missing, each layer as soon as it is made; the image of all.

    Raises faults.PublishError where the registry does not take it, and RdmaImagesError for what cannot be made.
    """
    if found.whole is None:
        wanted, blobs = found.wanted, dict(found.blobs)
        for recipe in found.missing:
            layer = maker.ready(recipe).result()
            blobs[recipe.key] = layer.blob(wanted.part)
            faults.retry(partial(_send, recipe, layer, wanted, repository), ATTEMPTS, FIRST_WAIT, say=progress)
        check([here for recipe in wanted.recipes if (here := store.find(recipe))])
        whole = _whole(wanted, blobs)
        faults.retry(partial(_put, repository, whole, wanted.tag), ATTEMPTS, FIRST_WAIT, say=progress)
        digest = whole.manifest.digest
    else:
        blobs, digest = found.blobs, found.whole
    new = sum(blobs[recipe.key].size for recipe in found.missing)
    there = sum(blob.size for blob in blobs.values()) - new
    progress(f"{repository.ref} had {megabytes(there)} of wheel layers; {megabytes(new)} were sent there")
    return Brought(f"{repository.ref}@{digest}", tuple(blobs[recipe.key] for recipe in found.wanted.recipes))


def _whole(wanted: Wanted, blobs: Mapping[str, Blob]) -> LayerImage:
    return layer_image([(one.title, blobs[one.key]) for one in wanted.recipes], wanted.platform, wanted.compression)


def _send(recipe: Recipe, layer: Layer, wanted: Wanted, repository: Repository) -> None:
    """Send one layer, and then the tag that says it is there."""
    blob = layer.blob(wanted.part)
    if not repository.has_blob(blob.digest, blob.size):
        place = repository.begin_upload(blob.digest)
        with layer.file(wanted.part).open("rb") as file:
            repository.upload(place, blob.digest, file)
    _put(
        repository, layer_image([(recipe.title, blob)], wanted.platform, wanted.compression), _tag(recipe, wanted.part)
    )


def _put(repository: Repository, image: LayerImage, tag: str) -> None:
    repository.put_blob(image.config)
    repository.put_manifest(tag, image.manifest)


def _one(recipe: Recipe, part: str, repository: Repository, locked: Digests) -> Blob | None:
    """A layer that the registry has."""
    if known := locked.blob(recipe, part):
        return known if repository.has_blob(known.digest, known.size) else None
    if found := _manifest(repository, _tag(recipe, part)):
        return _blobs(repository, found, 1)[0]
    return None


def _manifest(repository: Repository, tag: str) -> Manifest | None:
    try:
        return repository.manifest(tag)
    except faults.MissingError:
        return None


def _blobs(repository: Repository, manifest: Manifest, number: int) -> list[Blob]:
    """The layers of an image. Raises MalformedError where it has not this number of them, in its config as well."""
    layers = manifest.layers()
    diff_ids = (repository.config(manifest).get("rootfs") or {}).get("diff_ids") or []
    if not len(layers) == len(diff_ids) == number:
        raise faults.MalformedError(
            f"{repository.ref}@{manifest.digest} has {len(layers)} layers where {number} are expected\n"
            "delete it there, or build without --cache-layers"
        )
    return [
        Blob(one.media_type, one.digest, str(diff_id), one.size) for one, diff_id in zip(layers, diff_ids, strict=True)
    ]


def _tag(recipe: Recipe, part: str) -> str:
    return f"{part}-{recipe.key[:40]}"
