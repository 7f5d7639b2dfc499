"""The layers of the images' wheels in the engine, made and sent while BuildKit builds all that is not a wheel."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from rdma_images.build.build_spec import Order
from rdma_images.build.run_bake import Options
from rdma_images.components.base import BaseDetails
from rdma_images.core.progress import Progress, silent
from rdma_images.engine import Engine, docker_command
from rdma_images.inputs import sources
from rdma_images.layers import digests, load, remote_layers, store
from rdma_images.layers.fetch import fetching
from rdma_images.layers.load import Brought, Wanted
from rdma_images.layers.make import Maker
from rdma_images.layers.recipe import Recipe, recipe
from rdma_images.layers.remote_layers import Resident
from rdma_images.registry import faults
from rdma_images.registry.client import Repository
from rdma_images.render import bake, wheel_layers
from rdma_images.selection.project import Project


@dataclass(frozen=True)
class Provided:
    """The contexts of each image by its id, the images of layers behind them, and how many steps ran meanwhile.

    `blobs` are each image's layers, the digest with the size in bytes; `at` is the registry's repository that has them.
    """

    contexts: dict[str, dict[str, str]] = field(default_factory=dict)
    blobs: dict[str, dict[str, int]] = field(default_factory=dict)
    at: str = ""
    refs: tuple[str, ...] = ()
    steps: int = 0


def usable(engine: Engine, options: Options) -> bool:
    """Whether layers can be handed over: by a registry, or to an engine that keeps them as they are and builds."""
    return options.layers is not None or _is_loadable(engine, options)


def provide(
    orders: Sequence[Order],
    project: Project,
    engine: Engine,
    options: Options,
    systems: Callable[[Sequence[str]], int],
    progress: Progress = silent,
) -> Provided:
    """Bring the wheels' layers of all images to where the build takes them: into the engine, or a registry.

    While layers are made or sent, `systems` builds the rest of the images whose ids it gets, and answers the number of
    its steps. Where layers are not `usable`, there are no contexts, and the Dockerfile's stages install the wheels.
    Raises RdmaImagesError for what cannot be made, and for a registry that does not answer.
    """
    locked = digests.read()
    wanted = _wanted(orders, options.compression) if usable(engine, options) else {}
    images = list(dict.fromkeys(one for of in wanted.values() for one in of.values()))
    if not images:
        return Provided()
    there = load.diff_ids(engine, options.compression) if _is_loadable(engine, options) else None
    if (repository := options.layers) is None:
        work = _loads(images, there or set(), engine, progress)
    else:
        work = _pulls(
            [remote_layers.look(one, repository, locked) for one in images], repository, there, engine, progress
        )
    try:
        maker = Maker(work.recipes, *sources.index_for(project.mirrors), progress, locked)
        brought, steps = _at_once(work.of, maker, (lambda: systems(list(wanted))) if work.is_long else None)
    except (faults.DeniedError, faults.UnauthorizedError) as error:
        progress(f"{faults.first_line(error)}; the wheels' layers are brought without this registry")
        return provide(orders, project, engine, replace(options, layers=None), systems, progress)
    contexts = {
        image_id: {name: f"docker-image://{brought[one].ref}" for name, one in of.items()}
        for image_id, of in wanted.items()
    }
    blobs = {
        image_id: {blob.digest: blob.size for one in of.values() for blob in brought[one].blobs}
        for image_id, of in wanted.items()
    }
    refs = tuple(brought[one].ref for one in images if one in work.in_engine)
    return Provided(contexts, blobs, repository.ref if repository else "", refs, steps)


@dataclass(frozen=True)
class _Work:
    """How each image of layers is brought, of which layers to make; `in_engine` are the images that the engine gets."""

    of: Mapping[Wanted, Callable[[Maker], Brought]]
    recipes: Sequence[Recipe]
    in_engine: Collection[Wanted]
    is_long: bool  # so that the rest of the images is built meanwhile


def _loads(images: Sequence[Wanted], there: set[str], engine: Engine, progress: Progress) -> _Work:
    """The layers into the engine, which has those `there`, by diff id."""
    recipes = [recipe for one in images for recipe in one.recipes]
    bring = partial(load.load, engine=engine, there=there, progress=progress)
    is_long = any(_is_new(recipe, one.part, there) for one in images for recipe in one.recipes)
    return _Work({one: partial(bring, one) for one in images}, recipes, images, is_long)


def _pulls(
    found: Sequence[Resident], repository: Repository, there: set[str] | None, engine: Engine, progress: Progress
) -> _Work:
    """The layers into a registry, and from there into the engine, where it has not all; `there` is None for none."""
    recipes = [recipe for one in found for recipe in one.missing]
    complete = partial(remote_layers.complete, repository=repository, progress=progress)
    work: dict[Wanted, Callable[[Maker], Brought]] = {one.wanted: partial(complete, one) for one in found}
    new = [one.wanted for one in found if there is not None and not one.diff_ids <= there]
    give = partial(_fetched, repository=repository, there=there or set(), progress=progress)
    pull = give if engine.kind == "private" else _pulled
    work |= {one: partial(pull, one, work[one], engine=engine) for one in new}
    return _Work(work, recipes, new, bool(recipes or new))


def _at_once(
    work: Mapping[Wanted, Callable[[Maker], Brought]], making: Maker, systems: Callable[[], int] | None
) -> tuple[dict[Wanted, Brought], int]:
    """What `work` makes of each image of layers, and the number of steps that `systems` took meanwhile."""
    # The pool outside: what waits for a layer ends once the maker has.
    with ThreadPoolExecutor(1) as pool, making as maker:
        running = pool.submit(lambda: {one: bring(maker) for one, bring in work.items()})
        steps = systems() if systems else 0
        return running.result(), steps


def _is_loadable(engine: Engine, options: Options) -> bool:
    """Whether the engine that builds keeps layers as it gets them."""
    return engine.store == "containerd" and not options.builder


def _pulled(_wanted: Wanted, complete: Callable[[Maker], Brought], maker: Maker, engine: Engine) -> Brought:
    """An image of layers that is in its registry and in the engine: BuildKit would pull it after all other steps."""
    brought = complete(maker)
    docker_command.output(engine, "pull", "--quiet", brought.ref)
    return brought


def _fetched(
    wanted: Wanted,
    complete: Callable[[Maker], Brought],
    maker: Maker,
    engine: Engine,
    repository: Repository,
    there: set[str],
    progress: Progress,
) -> Brought:
    """The same in the private engine, which takes files faster than it pulls them."""
    with fetching(wanted, complete(maker), repository, there, maker.stop, progress) as source:
        return load.load(wanted, source, engine, there, progress)


def _is_new(recipe: Recipe, part: str, there: Collection[str]) -> bool:
    """Whether a layer is yet to be made, or to be sent to the engine that has `there`."""
    made = store.find(recipe)
    return made is None or made.blob(part).diff_id not in there


def _wanted(orders: Sequence[Order], compression: bake.Compression) -> dict[str, dict[str, Wanted]]:
    """The layers that stand for stages of an image, by its id and the stage.

    None for an image whose wheels lie above a base with settings of its own.
    """
    found = {}
    for order in orders:
        recipes = tuple(recipe(layer, compression) for layer in wheel_layers.wheel_layers(order.lock))
        if recipes and order.image.details(BaseDetails).cuda is None:
            found[order.image.id] = {bake.WHEELS: Wanted(recipes, "runtime", order.image.platform)}
            if order.image.axes["variant"] == "devel":
                found[order.image.id][bake.DEVEL] = Wanted(recipes, "devel", order.image.platform)
    return found
