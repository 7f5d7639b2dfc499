"""Bring wheel layers to the builder while BuildKit builds the rest."""

from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from rdma_images.build.build_spec import BuildSpec
from rdma_images.build.run_bake import Options
from rdma_images.components.base import BaseDetails
from rdma_images.core.errors import first_line
from rdma_images.core.progress import Progress, silent
from rdma_images.engine import Engine
from rdma_images.inputs import sources
from rdma_images.inputs.project import Project
from rdma_images.layers import layer_store
from rdma_images.layers.engine_layers import EngineLayers, engine_layers, load_image
from rdma_images.layers.layer_image import LayerSet, LoadedImage
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.recipe import Recipe, layer_recipe
from rdma_images.layers.registry_layers import RegistryLayers, complete_registry, query_registry
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Repository
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


def provide_contexts(
    specs: Sequence[BuildSpec],
    project: Project,
    engine: Engine,
    options: Options,
    compiling: Container[str],
    build_system_layers: Callable[[Sequence[str]], None],
    progress: Progress = silent,
) -> WheelContexts:
    """Bring all images' wheel layers to the builder: into the engine, or a registry.

    While layers are made or sent, `build_system_layers` builds the rest of the images whose ids it gets. Where
    layers are not usable, there are no contexts, and the Dockerfile's stages install the wheels. `compiling` has the
    ids of images of which packages are compiled: that needs the layers of a devel image, too.

    Raises RdmaImagesError for what cannot be made, and for a registry that does not answer.
    """
    is_usable = options.layers is not None or _is_loadable(engine, options)
    layer_sets = _layer_sets(specs, compiling, options.compression) if is_usable else {}
    distinct_layer_sets = list(
        dict.fromkeys(layer_set for by_stage in layer_sets.values() for layer_set in by_stage.values())
    )
    if not distinct_layer_sets:
        return WheelContexts()
    repository = options.layers
    remotes = {each: query_registry(each, repository) for each in distinct_layer_sets} if repository else {}
    to_engine = [each for each in distinct_layer_sets if not repository or _is_made_here(remotes[each])]
    if not _is_loadable(engine, options):
        to_engine = []
    in_engine = engine_layers(engine, options.compression) if to_engine else EngineLayers()
    way = _Way(engine, in_engine, repository, remotes, to_engine, progress)
    try:
        recipes = [recipe for layer_set in distinct_layer_sets for recipe in way.recipes(layer_set)]
        layer_pool = LayerPool(recipes, *sources.index_for(project.mirrors), progress)
        is_long = any(map(way.is_long, distinct_layer_sets))
        # The executor outside: what waits for a layer ends once the pool has.
        with ThreadPoolExecutor(1) as executor, layer_pool:
            bringing = executor.submit(lambda: {each: way.bring(each, layer_pool) for each in distinct_layer_sets})
            if is_long:
                build_system_layers(list(layer_sets))
            loaded_images = bringing.result()
    except (registry_errors.DeniedError, registry_errors.UnauthorizedError) as error:
        progress(f"{first_line(error)}; the wheels' layers are brought without this registry")
        options = replace(options, layers=None)
        return provide_contexts(specs, project, engine, options, compiling, build_system_layers, progress)
    contexts = {
        image_id: {name: f"docker-image://{loaded_images[layer_set].ref}" for name, layer_set in by_stage.items()}
        for image_id, by_stage in layer_sets.items()
    }
    blobs = {
        image_id: {blob.digest: blob.size for layer_set in by_stage.values() for blob in loaded_images[layer_set].blobs}
        for image_id, by_stage in layer_sets.items()
    }
    refs = tuple(loaded_images[layer_set].ref for layer_set in to_engine)
    return WheelContexts(contexts, blobs, repository.ref if repository else "", refs)


@dataclass(frozen=True)
class _Way:
    """The way of layers to the builder: what is made here is loaded, and a registry's is read there by BuildKit."""

    engine: Engine
    engine_layers: EngineLayers
    repository: Repository | None
    remotes: Mapping[LayerSet, RegistryLayers]  # what the repository has; empty without one
    to_engine: Sequence[LayerSet]  # that are loaded into the engine
    progress: Progress

    def recipes(self, layer_set: LayerSet) -> Sequence[Recipe]:
        """Return the layers that are needed as files: made, where this machine has not made them before."""
        return layer_set.recipes if layer_set in self.to_engine else self.remotes[layer_set].missing

    def is_long(self, layer_set: LayerSet) -> bool:
        """Return whether bringing the layers takes so long that the rest of the images is built meanwhile."""
        if self.repository and self.remotes[layer_set].missing:
            return True
        is_new = (_is_new(recipe, layer_set.part, self.engine_layers) for recipe in layer_set.recipes)
        return layer_set in self.to_engine and any(is_new)

    def bring(self, layer_set: LayerSet, layer_pool: LayerPool) -> LoadedImage:
        """Make, send and load what is missing; return the image of the layers where the builder finds it."""
        if self.repository:
            sent = complete_registry(self.remotes[layer_set], layer_pool, self.repository, self.progress)
            if layer_set not in self.to_engine:
                return sent
        return load_image(layer_set, layer_pool, self.engine, self.engine_layers, self.progress)


def _is_made_here(remote: RegistryLayers) -> bool:
    """Return whether this machine has made, or will make, all layers of an image."""
    return all(recipe in remote.missing or layer_store.find(recipe) for recipe in remote.layer_set.recipes)


def _is_loadable(engine: Engine, options: Options) -> bool:
    """Return whether the engine that builds keeps layers as it gets them."""
    return engine.store == "containerd" and not options.builder


def _is_new(recipe: Recipe, part: str, engine_layers: EngineLayers) -> bool:
    """Return whether a layer is yet to be made, or to be sent to the engine."""
    layer = layer_store.find(recipe)
    return layer is None or not engine_layers.has(layer.blob(part))


def _layer_sets(
    specs: Sequence[BuildSpec], compiling: Container[str], compression: bake.Compression
) -> dict[str, dict[str, LayerSet]]:
    """Return the layers that stand for stages of an image, by its id and the stage.

    An image whose base has its own settings below the wheels has no entry.
    """
    layer_sets = {}
    for spec in specs:
        recipes = tuple(layer_recipe(layer, compression) for layer in wheel_layers.wheel_layers(spec.lock))
        if recipes and spec.image.details(BaseDetails).cuda is None:
            layer_sets[spec.image.id] = {bake.WHEELS: LayerSet(recipes, "runtime", spec.image.platform)}
            if spec.image.axes["variant"] == "devel" or spec.image.id in compiling:
                layer_sets[spec.image.id][bake.DEVEL] = LayerSet(recipes, "devel", spec.image.platform)
    return layer_sets
