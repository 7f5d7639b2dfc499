"""Bring wheel layers to the builder while BuildKit builds the rest."""

from collections.abc import Callable, Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from rdma_images.build.build_spec import BuildSpec
from rdma_images.build.run_bake import BuildOptions
from rdma_images.components.base import BaseDetails
from rdma_images.core.errors import first_line
from rdma_images.core.progress import Progress, silent
from rdma_images.engine import Engine
from rdma_images.inputs import sources
from rdma_images.inputs.project import Project
from rdma_images.layers import layer_store
from rdma_images.layers.engine_layers import engine_layers, load_image
from rdma_images.layers.layer_image import LayerSet, LoadedImage
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.recipe import layer_recipe
from rdma_images.layers.registry_layers import complete_registry, query_registry
from rdma_images.registry import registry_errors
from rdma_images.render import bake, wheel_layers


@dataclass(frozen=True)
class WheelContexts:
    """The contexts of each image by its id, and the images of layers behind them.

    `blobs` are each image's layers, the digest with the size in bytes; `registry` is the repository that has them.
    """

    contexts: dict[str, dict[str, str]] = field(default_factory=dict)
    blobs: dict[str, dict[str, int]] = field(default_factory=dict)
    registry: str = ""
    image_refs: tuple[str, ...] = ()


def bring_wheel_layers(
    specs: Sequence[BuildSpec],
    project: Project,
    engine: Engine,
    options: BuildOptions,
    compiling_ids: Container[str],
    build_system_layers: Callable[[Sequence[str]], None],
    progress: Progress = silent,
) -> WheelContexts:
    """Bring all images' wheel layers to the builder: into the engine, or a registry.

    Where layers are not usable, there are no contexts, and the Dockerfile's stages install the wheels. Raises
    RdmaImagesError for what cannot be made, and for a registry that does not answer.

    Args:
        compiling_ids: Ids of the images with packages to compile: they also get the layers of a devel image.
        build_system_layers: Called with ids of images while layers are made or sent.
    """
    repository = options.layers
    is_loadable = engine.store == "containerd" and not options.builder  # it keeps layers as it gets them
    by_image = _layer_sets(specs, compiling_ids, options.compression)
    layer_sets = list(dict.fromkeys(layer_set for by_stage in by_image.values() for layer_set in by_stage.values()))
    bring: dict[LayerSet, Callable[[LayerPool], LoadedImage]]
    if not (layer_sets and (repository or is_loadable)):
        return WheelContexts()
    if repository:
        remotes = {layer_set: query_registry(layer_set, repository) for layer_set in layer_sets}
        recipes = [recipe for remote in remotes.values() for recipe in remote.missing]
        is_long = bool(recipes)
        bring = {
            layer_set: partial(complete_registry, remote, repository=repository, progress=progress)
            for layer_set, remote in remotes.items()
        }
    else:
        loaded = engine_layers(engine, options.compression)
        recipes = [recipe for layer_set in layer_sets for recipe in layer_set.recipes]
        wanted = ((layer_store.find(recipe), each.variant) for each in layer_sets for recipe in each.recipes)
        is_long = not all(layer and loaded.has(layer.blob(name)) for layer, name in wanted)  # one is made, or sent
        bring = {
            layer_set: partial(load_image, layer_set, engine=engine, engine_layers=loaded, progress=progress)
            for layer_set in layer_sets
        }
    try:
        layer_pool = LayerPool(recipes, *sources.index_for(project.mirrors), progress)
        # The executor outside: what waits for a layer ends once the pool has.
        with ThreadPoolExecutor(1) as executor, layer_pool:
            bringing = executor.submit(lambda: {each: bring[each](layer_pool) for each in layer_sets})
            if is_long:
                build_system_layers(list(by_image))
            images = bringing.result()
    except (registry_errors.DeniedError, registry_errors.UnauthorizedError) as error:
        progress(f"{first_line(error)}; the wheels' layers are brought without this registry")
        options = replace(options, layers=None)
        return bring_wheel_layers(specs, project, engine, options, compiling_ids, build_system_layers, progress)
    return WheelContexts(
        contexts={
            image_id: {stage: f"docker-image://{images[layer_set].ref}" for stage, layer_set in by_stage.items()}
            for image_id, by_stage in by_image.items()
        },
        blobs={
            image_id: {blob.digest: blob.size for layer_set in by_stage.values() for blob in images[layer_set].blobs}
            for image_id, by_stage in by_image.items()
        },
        registry=repository.ref if repository else "",
        image_refs=() if repository else tuple(image.ref for image in images.values()),
    )


def _layer_sets(
    specs: Sequence[BuildSpec], compiling_ids: Container[str], compression: bake.Compression
) -> dict[str, dict[str, LayerSet]]:
    """Return the layers that replace stages of an image, by its id and the stage.

    Images with --onto, and those on a CUDA base, have no entry: their wheels are not the lowest layers.
    """
    layer_sets = {}
    for spec in specs:
        recipes = tuple(layer_recipe(layer, compression) for layer in wheel_layers.wheel_layers(spec.lock))
        if recipes and not spec.image.onto and spec.image.details(BaseDetails).cuda is None:
            layer_sets[spec.image.id] = {bake.WHEELS: LayerSet(recipes, "runtime", spec.image.platform)}
            if spec.image.axes["variant"] == "devel" or spec.image.id in compiling_ids:
                layer_sets[spec.image.id][bake.DEVEL] = LayerSet(recipes, "devel", spec.image.platform)
    return layer_sets
