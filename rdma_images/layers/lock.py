"""`invoke lock --layers`: the digests of wheels' layers into locks/layers.yaml; what was not made here is made."""

from collections.abc import Iterable

from rdma_images.components.base import BaseDetails
from rdma_images.core import yaml_file
from rdma_images.core.pipeline import Image
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import readable
from rdma_images.inputs import lock as wheel_lock
from rdma_images.inputs import sources
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.relock import Locked
from rdma_images.inputs.wheels import Lock
from rdma_images.layers import digests
from rdma_images.layers.make import Maker
from rdma_images.layers.recipe import Recipe, recipe
from rdma_images.render import wheel_layers
from rdma_images.render.bake import Compression


def lock(images: Iterable[Image], mirrors: Mirrors, compression: Compression, progress: Progress = silent) -> Locked:
    """Write down the digests of the layers of images' wheels; what became of the file.

    A layer that the file has stays as it is; one that was made here before is taken, any other is made. Raises
    RdmaImagesError for what cannot be made.
    """
    wanted = _recipes((wheel_lock.load(image) for image in images if _has_layers(image)), compression)
    known = digests.read()
    missing = [one for key, one in wanted.items() if key not in known.entries]
    index, opened = sources.index_for(mirrors)
    with Maker(missing, index, opened, progress) as maker:
        made = {one: maker.ready(one).result() for one in missing}
    digests.keep(made, wanted.keys() | _recipes(_locks(), compression).keys())
    size = readable(sum(layer.runtime.size for layer in made.values()))
    detail = f"{len(wanted)} known" + (f", {len(made)} of them new ({size})" if made else "")
    return Locked(digests.NAME, "new" if made else "kept", detail)


def _has_layers(image: Image) -> bool:
    """Not where its wheels lie above a base with settings of its own: stages install them there."""
    return image.details(BaseDetails).cuda is None


def _recipes(locks: Iterable[Lock], compression: Compression) -> dict[str, Recipe]:
    found = (recipe(layer, compression) for one in locks for layer in wheel_layers.wheel_layers(one))
    return {one.key: one for one in found}


def _locks() -> Iterable[Lock]:
    """Return every lock of wheels that there is, whoever needs it."""
    for folder in digests.folders():
        for file in (folder / "python").glob("*.json"):
            yield yaml_file.load(file, Lock)
