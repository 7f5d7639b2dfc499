"""`invoke lock --layers`: make the layers of locked wheels, and lock their digests."""

from collections.abc import Iterable
from contextlib import ExitStack

from rdma_images.components.base import BaseDetails
from rdma_images.core import locking, yaml_file
from rdma_images.core.image import Image
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import format_bytes
from rdma_images.inputs import lock as wheel_lock
from rdma_images.inputs import sources
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.relock import LockOutcome
from rdma_images.inputs.wheels import Lock
from rdma_images.layers import locked_digests
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.recipe import Recipe, layer_recipe
from rdma_images.render import wheel_layers
from rdma_images.render.bake import Compression


def lock(
    images: Iterable[Image], mirrors: Mirrors, compression: Compression, progress: Progress = silent
) -> LockOutcome:
    """Lock the digests of the layers of images' wheels, and return the outcome.

    A layer that the file has stays as it is; one that was made here before is taken, any other is made. Raises
    RdmaImagesError for what cannot be made.
    """
    images = list(images)
    # On a base with a CUDA toolkit, stages install the wheels.
    recipes = _recipes(
        (wheel_lock.load(image) for image in images if image.details(BaseDetails).cuda is None), compression
    )
    locked = locked_digests.read_digests()
    missing_recipes = [recipe for key, recipe in recipes.items() if key not in locked.entries]
    index, opener = sources.index_for(mirrors)
    with ExitStack() as stack:
        if missing_recipes:  # two makers would remove wheels that the other one reads
            stack.enter_context(locking.hold("build", "making the wheels' layers", progress))
        layer_pool = stack.enter_context(LayerPool(missing_recipes, index, opener, progress))
        layers = {recipe: layer_pool.layer_future(recipe).result() for recipe in missing_recipes}
        locked_digests.save(layers, recipes.keys() | _recipes(_locks(), compression).keys())
    size = format_bytes(sum(layer.runtime.size for layer in layers.values()))
    detail = f"{len(recipes)} known" + (f", {len(layers)} of them new ({size})" if layers else "")
    return LockOutcome(locked_digests.NAME, "new" if layers else "kept", detail)


def _recipes(locks: Iterable[Lock], compression: Compression) -> dict[str, Recipe]:
    recipes = (layer_recipe(layer, compression) for locked in locks for layer in wheel_layers.wheel_layers(locked))
    return {recipe.key: recipe for recipe in recipes}


def _locks() -> Iterable[Lock]:
    """Return every lock of wheels that there is, whoever needs it."""
    for folder in locked_digests.folders():
        for file in (folder / "python").glob("*.json"):
            yield yaml_file.load(file, Lock)
