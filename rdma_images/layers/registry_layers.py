"""Layers in a registry, which are neither made here nor sent again.

A layer is under a tag with its recipe's key, an image of layers under a tag with the key of them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import format_megabytes
from rdma_images.layers import layer_store, seekable_layer
from rdma_images.layers.blob import Blob
from rdma_images.layers.layer_image import LayerImage, LayerSet, LoadedImage, layer_image
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.layer_store import StoredLayer
from rdma_images.layers.recipe import Recipe
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Manifest, Repository, config_diff_ids


@dataclass(frozen=True)
class RegistryLayers:
    """The layers of one image's wheels that a registry has."""

    layer_set: LayerSet
    image_digest: str | None  # the digest of the image of all of them, where that is there
    blobs: dict[str, Blob]  # by the recipe's key

    @property
    def missing(self) -> tuple[Recipe, ...]:
        """Return the layers that are to be made."""
        if self.image_digest:
            return ()
        return tuple(recipe for recipe in self.layer_set.recipes if recipe.key not in self.blobs)


def query_registry(layer_set: LayerSet, repository: Repository) -> RegistryLayers:
    """Return what a registry has of the layers.

    Raises RdmaImagesError where it does not answer, or has another layer than this machine made.
    """
    recipes = layer_set.recipes
    image = _manifest(repository, layer_set.tag)
    blobs = {}
    if image is not None:
        blobs = dict(zip((recipe.key for recipe in recipes), _blobs(repository, image, len(recipes)), strict=True))
    else:
        for recipe in recipes:
            if manifest := _manifest(repository, _tag(recipe, layer_set.variant)):
                blobs[recipe.key] = _blobs(repository, manifest, 1)[0]
    for recipe in recipes:
        remote, local = blobs.get(recipe.key), layer_store.find(recipe)
        if remote and local and remote != local.blob(layer_set.variant):
            raise RdmaImagesError(
                f"{repository.ref}: {recipe.name} is {remote.digest} there, but of the same wheels this machine made "
                f"{local.blob(layer_set.variant).digest}\nfind out who wrote it, and delete the tag "
                f"{layer_set.tag if image else _tag(recipe, layer_set.variant)} there; or build without --cache-layers"
            )
    # Only an image that is ours to the byte: settings in its config would be those of what is built on it.
    is_ours = image is not None and _layer_image(layer_set, blobs).manifest.digest == image.digest
    return RegistryLayers(layer_set, image.digest if image and is_ours else None, blobs)


def complete_registry(
    remote: RegistryLayers, layer_pool: LayerPool, repository: Repository, progress: Progress = silent
) -> LoadedImage:
    """Send what is missing, each layer as soon as it is made; return the image of all.

    Raises RegistryError where the registry does not take it, and RdmaImagesError for what cannot be made.
    """
    if remote.image_digest is None:
        layer_set, blobs = remote.layer_set, dict(remote.blobs)
        for recipe in remote.missing:
            layer = layer_pool.layer_future(recipe).result()
            blobs[recipe.key] = layer.blob(layer_set.variant)
            registry_errors.retry(partial(_send, recipe, layer, layer_set, repository), progress=progress)
        layer_store.check_collisions(layer_set.recipes)
        complete_image = _layer_image(layer_set, blobs)
        registry_errors.retry(partial(_put_image, repository, complete_image, layer_set.tag), progress=progress)
        digest = complete_image.manifest.digest
    else:
        blobs, digest = remote.blobs, remote.image_digest
    sent_bytes = sum(blobs[recipe.key].size for recipe in remote.missing)
    present_bytes = sum(blob.size for blob in blobs.values()) - sent_bytes
    progress(
        f"{repository.ref} had {format_megabytes(present_bytes)} of wheel layers; "
        f"{format_megabytes(sent_bytes)} were sent there"
    )
    return LoadedImage(f"{repository.ref}@{digest}", tuple(blobs[recipe.key] for recipe in remote.layer_set.recipes))


def _layer_image(layer_set: LayerSet, blobs: Mapping[str, Blob]) -> LayerImage:
    return layer_image(
        [(recipe.title, blobs[recipe.key]) for recipe in layer_set.recipes], layer_set.platform, layer_set.compression
    )


def _send(recipe: Recipe, layer: StoredLayer, layer_set: LayerSet, repository: Repository) -> None:
    """Send one layer, and then the tag under which it is looked up."""
    blob = layer.blob(layer_set.variant)
    repository.put_file(blob.digest, layer.file(layer_set.variant))
    _put_image(
        repository,
        layer_image([(recipe.title, blob)], layer_set.platform, layer_set.compression),
        _tag(recipe, layer_set.variant),
    )


def _put_image(repository: Repository, image: LayerImage, tag: str) -> None:
    repository.put_blob(image.config)
    repository.put_manifest(tag, image.manifest)


def _manifest(repository: Repository, tag: str) -> Manifest | None:
    try:
        return repository.manifest(tag)
    except registry_errors.MissingError:
        return None


def _blobs(repository: Repository, manifest: Manifest, number: int) -> list[Blob]:
    """Return the layers of an image. Raises MalformedError for another number of them."""
    layers = manifest.layers()
    diff_ids = config_diff_ids(repository.config(manifest))
    if not len(layers) == len(diff_ids) == number:
        raise registry_errors.MalformedError(
            f"{repository.ref}@{manifest.digest} has {len(layers)} layers where {number} are expected\n"
            "delete it there, or build without --cache-layers"
        )
    return [
        Blob(layer.media_type, layer.digest, diff_id, layer.size, layer.annotations.get(seekable_layer.ANNOTATION, ""))
        for layer, diff_id in zip(layers, diff_ids, strict=True)
    ]


def _tag(recipe: Recipe, part: str) -> str:
    return f"{part}-{recipe.key[:40]}"
