"""Bring wheel layers to the builder while BuildKit builds the rest."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rdma_images.build.build_spec import BuildSpec
from rdma_images.build.run_bake import BuildOptions
from rdma_images.components.base import BaseDetails
from rdma_images.core.compression import Compression
from rdma_images.core.errors import first_line
from rdma_images.core.progress import Progress, silent
from rdma_images.engine import Engine
from rdma_images.inputs import sources
from rdma_images.inputs.project import Project
from rdma_images.layers import layer_store
from rdma_images.layers.engine_layers import load_image, read_engine_layers
from rdma_images.layers.layer_image import LayerSet, LoadedImage
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.recipe import layer_recipe
from rdma_images.layers.registry_layers import complete_registry, query_registry
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
    by_image = _layer_sets(specs, compiling_ids, options.compression)
    layer_sets = list(dict.fromkeys(layer_set for by_stage in by_image.values() for layer_set in by_stage.values()))
    for destination in _destinations(layer_sets, engine, options, progress) if layer_sets else ():
        try:
            # The executor outside: what waits for a layer ends once the pool has.
            layer_pool = LayerPool(destination.recipes, *sources.index_for(project.mirrors), progress)
            with ThreadPoolExecutor(1) as executor, layer_pool:
                images = executor.submit(destination.bring, layer_pool)
                if destination.has_layers_to_bring:
                    build_system_layers(list(by_image))
                return _contexts(by_image, images.result(), destination.registry)
        except (registry_errors.DeniedError, registry_errors.UnauthorizedError) as error:
            progress(f"{first_line(error)}; the wheels' layers are brought without this registry")
    return WheelContexts()


class _InEngine:
    """The layers in an engine that keeps them as it gets them.

    `recipes` are the layers that are needed here; `has_layers_to_bring` says whether one is to be made, or sent.
    """

    registry = ""

    def __init__(
        self, layer_sets: Sequence[LayerSet], engine: Engine, compression: Compression, progress: Progress
    ) -> None:
        self._layer_sets, self._engine, self._progress = layer_sets, engine, progress
        self._present = read_engine_layers(engine, compression)
        self.recipes = [recipe for layer_set in layer_sets for recipe in layer_set.recipes]
        wanted = ((layer_store.find(recipe), each.variant) for each in layer_sets for recipe in each.recipes)
        self.has_layers_to_bring = not all(kept and self._present.has_blob(kept.blob(part)) for kept, part in wanted)

    def bring(self, layer_pool: LayerPool) -> dict[LayerSet, LoadedImage]:
        """Load what the engine lacks; return the images of the layers."""
        return {
            layer_set: load_image(layer_set, layer_pool, self._engine, self._present, self._progress)
            for layer_set in self._layer_sets
        }


class _InRegistry:
    """The layers in a registry, from which the builder takes them; the attributes are as of _InEngine."""

    def __init__(self, layer_sets: Sequence[LayerSet], repository: Repository, progress: Progress) -> None:
        self._repository, self._progress = repository, progress
        self._remotes = {layer_set: query_registry(layer_set, repository) for layer_set in layer_sets}
        self.registry = repository.ref
        self.recipes = [recipe for remote in self._remotes.values() for recipe in remote.missing]
        self.has_layers_to_bring = bool(self.recipes)

    def bring(self, layer_pool: LayerPool) -> dict[LayerSet, LoadedImage]:
        """Send what the registry lacks; return the images of the layers."""
        return {
            layer_set: complete_registry(remote, layer_pool, self._repository, self._progress)
            for layer_set, remote in self._remotes.items()
        }


def _destinations(
    layer_sets: Sequence[LayerSet], engine: Engine, options: BuildOptions, progress: Progress
) -> Iterator[_InRegistry | _InEngine]:
    """Yield the registry that the user named, then the engine of the build, where it can keep layers."""
    if options.layers:
        yield _InRegistry(layer_sets, options.layers, progress)
    if engine.store == "containerd" and not options.builder:
        yield _InEngine(layer_sets, engine, options.compression, progress)


def _contexts(
    by_image: Mapping[str, Mapping[str, LayerSet]], images: Mapping[LayerSet, LoadedImage], registry: str
) -> WheelContexts:
    """Return the contexts of images whose layers have been brought."""
    return WheelContexts(
        contexts={
            image_id: {stage: f"docker-image://{images[layer_set].ref}" for stage, layer_set in by_stage.items()}
            for image_id, by_stage in by_image.items()
        },
        blobs={
            image_id: {blob.digest: blob.size for layer_set in by_stage.values() for blob in images[layer_set].blobs}
            for image_id, by_stage in by_image.items()
        },
        registry=registry,
        image_refs=() if registry else tuple(image.ref for image in images.values()),
    )


def _layer_sets(
    specs: Sequence[BuildSpec], compiling_ids: Container[str], compression: Compression
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
