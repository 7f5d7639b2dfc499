"""From orders to images in an engine: one bake call for all that are not there yet."""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rdma_images import atomic, bake, labels, paths, room, store, supply
from rdma_images.contexts import Pantry
from rdma_images.engine import Engine, Progress, bootstrap, silent, turn
from rdma_images.errors import RdmaImagesError, RefusedError, near
from rdma_images.fetch import fetch
from rdma_images.model import Build, Image, Source, Supply
from rdma_images.order import Order
from rdma_images.secrets import secrets
from rdma_images.site import Site

REPOSITORY = "rdma-images"  # of every image in the engine: rdma-images/<target>:<tag>

BUILDX = {
    # Later than 0.20 it asks before a bake file reads outside the project; these files are our own.
    "BUILDX_BAKE_ENTITLEMENTS_FS": "0",
    # Helpers leave no image behind; two equal ones would even fight over its name.
    "BUILDX_NO_DEFAULT_LOAD": "1",
}

IMAGE = "{image}"  # in the address of a cache

# One line a node, which buildx before 0.13 writes "Buildkit:".
_BUILDKIT = re.compile(r"^build ?kit(?: version)?:\s*(\S+)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Options:
    """How to build, as opposed to what."""

    rehearse: bool = False
    builder: str | None = None  # a buildx builder; the engine's own where none is named
    compression: bake.Compression = "zstd"
    cache_from: tuple[str, ...] = ()  # registry caches, in buildx's notation, with IMAGE for the image's id
    cache_to: tuple[str, ...] = ()


def options(
    rehearse: bool, builder: str, compression: str, cache_from: Sequence[str] | None, cache_to: Sequence[str] | None
) -> Options:
    """The options as they are typed. Raises RefusedError for a compression that is none."""
    if compression not in bake.COMPRESSIONS:
        raise RefusedError(f"--compression {compression}: {near(compression, bake.COMPRESSIONS)}")
    chosen: bake.Compression = "gzip" if compression == "gzip" else "zstd"
    return Options(rehearse, builder or None, chosen, tuple(cache_from or ()), tuple(cache_to or ()))


def build(
    orders: Sequence[Order], site: Site, engine: Engine, options: Options, progress: Progress = silent
) -> tuple[Build, ...]:
    """Every image of `orders` in the engine; those that are there with the same inputs are left as they are.

    Raises OutOfReachError with the whole table where a source does not answer, RefusedError where images would write
    their caches one over another, and RdmaImagesError where a download is not what is pinned, the disk is too small or
    BuildKit fails; then no image is made and nothing is written down.
    """
    shared = next((cache for cache in options.cache_to if IMAGE not in cache), None)
    if shared and len(orders) > 1:
        raise RefusedError(f"--cache-to {shared}: {len(orders)} images would overwrite it in turn: put {IMAGE} in it")
    there = _all_there(orders, engine)
    if len(there) == len(orders):
        _say_nothing_to_do(there, progress)
    else:
        with turn.take("build", f"building {', '.join(o.image.id for o in orders)}", progress):
            # Asked again: while this run waited for its turn, another may have built the same.
            there = _all_there(orders, engine)
            _say_nothing_to_do(there, progress)
            if missing := [o for o in orders if o.image.id not in there]:
                there |= _build(missing, site, engine, options, progress)
    return tuple(there[o.image.id] for o in orders)


def load(image_id: str) -> Build | None:
    """What was built under this id, None where nothing was."""
    try:
        told = json.loads((paths.image_folder(image_id) / "build.json").read_text(encoding="utf-8"))
        return Build(**{**told, "rehearsal": tuple(told["rehearsal"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def ref(image: Image, stood_in: Sequence[str]) -> str:
    """The name of an image in the engine; a rehearsal's says so."""
    return f"{REPOSITORY}/{image.target}:{image.tag}{'-rehearsal' if stood_in else ''}"


def keep_history(made: Collection[Build], engine: Engine, builder: str | None, progress: Progress = silent) -> None:
    """Write buildkit.json for each image: BuildKit's own record of its build, which BuildKit forgets after some days.

    Where the builder cannot be asked, that is said, and none is written.
    """
    from rdma_images.engine import history  # gRPC: 0.2 s, which only who has built should wait for

    try:
        found = history.provenances(engine, {one.digest for one in made}, builder or "")
    except RdmaImagesError as error:
        found = {}
        progress(f"{error}: the provenance will be this project's alone")
    for one in made:
        path = paths.image_folder(one.image_id) / "buildkit.json"
        if record := found.get(one.digest):
            atomic.write(path, json.dumps(asdict(record), indent=2) + "\n")
        else:
            path.unlink(missing_ok=True)


def _all_there(orders: Sequence[Order], engine: Engine) -> dict[str, Build]:
    """The images that need not be built, by id: built before from the same inputs, and still in the engine."""
    before = {o.image.id: made for o in orders if (made := load(o.image.id)) and made.inputs == o.inputs}
    if any(_uncommitted(made.revision) for made in before.values()) and not _uncommitted(labels.revision().commit):
        # The same inputs are in a commit by now, and the label can name it: only that is made anew.
        before = {image_id: made for image_id, made in before.items() if not _uncommitted(made.revision)}
    digests = _digests([made.ref for made in before.values()], engine)
    return {image_id: made for image_id, made in before.items() if digests.get(made.ref) == made.digest}


def _uncommitted(revision: str) -> bool:
    return revision.endswith("-dirty")


def _say_nothing_to_do(there: Mapping[str, Build], progress: Progress) -> None:
    for found in there.values():
        progress(f"{found.ref} is there, made of the same inputs: nothing to build")


def bake_file(orders: Sequence[Order], site: Site, rehearse: bool) -> Path:
    """Write build/bake.json for `orders`, to look at or to bake by hand; downloads nothing."""

    def made(base: str) -> Path:
        known = bootstrap.known(base)
        return paths.state_folder() / "bases" / (known.tar if known else f"{base}.tar")

    def kept(source: Source) -> Path:
        file = store.kept(source)
        return file.parent if file else store.root() / source.id

    supplies = {o.image.id: supply.supply(o.sources, site.mirrors, rehearse) for o in orders}
    pantry = Pantry(site.facts, kept, made)
    targets = _targets(orders, supplies, pantry, site, labels.revision())
    path = paths.BUILD / "bake.json"
    atomic.write(path, bake.text(bake.bake_file(targets, list(pantry.helpers.values()))))
    return path


def _build(
    orders: Sequence[Order], site: Site, engine: Engine, options: Options, progress: Progress
) -> dict[str, Build]:
    """Reach every source, fetch what is fetched here, bake, and write down what was made."""
    begun = time.monotonic()
    supplies = {o.image.id: supply.supply(o.sources, site.mirrors, options.rehearse) for o in orders}
    everything = [one for several in supplies.values() for one in several]
    supply.require(everything)
    room.need(orders, engine)
    downloads = fetch(everything, site.mirrors, progress)
    pantry = Pantry(site.facts, lambda source: downloads[source.id], lambda base: bootstrap.base(base, progress))
    made_from = labels.revision()
    targets = _targets(orders, supplies, pantry, site, made_from)
    file = bake.bake_file(targets, list(pantry.helpers.values()))
    with ExitStack() as stack:
        files = {i: stack.enter_context(secrets(several, site.mirrors)) for i, several in supplies.items()}
        of_target = {bake.name_of(i): files[i] for i in files} | {h: files[i] for h, i in pantry.users.items()}
        _bake(file, targets, of_target, engine, options)
    seconds = round(time.monotonic() - begun, 1)
    made_by = _programs(engine, options.builder)
    made = {o.image.id: _record(o, supplies[o.image.id], engine, seconds, made_from, made_by) for o in orders}
    keep_history(made.values(), engine, options.builder, progress)
    return made


def _targets(
    orders: Sequence[Order],
    supplies: Mapping[str, Sequence[Supply]],
    pantry: Pantry,
    site: Site,
    made_from: labels.Revision,
) -> list[bake.ImageTarget]:
    """The images of the bake file."""
    targets = []
    for o in orders:
        stood_in = supply.rehearsed(supplies[o.image.id])
        targets.append(
            bake.ImageTarget(
                image=o.image,
                dockerfile=o.dockerfile,
                ref=ref(o.image, stood_in),
                contexts=pantry.contexts(o.image, supplies[o.image.id]),
                labels=labels.labels(o.image, site.matrix.target(o.image.target).summary, made_from, stood_in),
                created=made_from.time,
            )
        )
    return targets


def _bake(
    file: Mapping[str, object],
    targets: Sequence[bake.ImageTarget],
    secret_files: Mapping[str, Mapping[str, Path]],
    engine: Engine,
    options: Options,
) -> None:
    """One `docker buildx bake`, its progress live on a terminal and in plain lines elsewhere."""
    outputs = {
        bake.name_of(t.image.id): bake.output(t.ref, engine.store, options.builder, options.compression)
        for t in targets
    }
    with tempfile.TemporaryDirectory(prefix="rdma-images-") as folder:
        files = {"bake.json": file, "run.json": bake.run_file(file, secret_files, outputs)}
        if engine.build_network == "host" and not options.builder:
            files = {"network.yaml": bake.network_file(file), **files}
        for name, content in files.items():
            (Path(folder) / name).write_text(bake.text(content), encoding="utf-8")
        command = ["docker", "buildx", "bake", "--provenance=false"]
        command += ["--progress", "auto" if sys.stderr.isatty() else "plain"]
        command += ["--builder", options.builder] if options.builder else []
        for cache in dict.fromkeys(c.replace(IMAGE, t.image.id) for c in options.cache_from for t in targets):
            command.append(f"--set=*.cache-from={cache}")
        for target in targets:  # the steps of its helpers are in it
            name = bake.name_of(target.image.id)
            command += [f"--set={name}.cache-to={cache.replace(IMAGE, target.image.id)}" for cache in options.cache_to]
        command += [part for name in files for part in ("--file", str(Path(folder) / name))]
        # What buildx 0.13 leaves in its temporary folder ends with ours.
        environ = engine.environ() | BUILDX | {"TMPDIR": folder}
        done = subprocess.run(command, cwd=paths.PROJECT, env=environ, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if done.returncode:
        names = ", ".join(t.image.id for t in targets)
        raise RdmaImagesError(f"BuildKit could not build {names}; what failed is in its last lines above")


def _programs(engine: Engine, builder: str | None) -> dict[str, str]:
    """Program -> version, of those that built: the engine's own BuildKit is Docker's, a builder's is told by buildx."""
    if not builder:
        return {"buildx": engine.buildx, "docker": engine.version}
    told = _docker(engine, "buildx", "inspect", builder).stdout
    found = sorted(set(_BUILDKIT.findall(told)))
    return {"buildx": engine.buildx, "buildkit": " and ".join(found) or "unknown"}


def _record(
    order: Order,
    supplies: Sequence[Supply],
    engine: Engine,
    seconds: float,
    made_from: labels.Revision,
    made_by: Mapping[str, str],
) -> Build:
    """Write build.json, and let go of the image that the new one replaces."""
    before = load(order.image.id)
    stood_in = supply.rehearsed(supplies)
    name = ref(order.image, stood_in)
    digest = _digests([name], engine).get(name)
    if digest is None:
        raise RdmaImagesError(f"{name} was built, but the engine does not have it: is its disk full?")
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    made = Build(
        image_id=order.image.id,
        ref=name,
        digest=digest,
        inputs=order.inputs,
        rehearsal=stood_in,
        finished=finished,
        seconds=seconds,
        revision=made_from.commit,
        builder=dict(made_by),
    )
    atomic.write(paths.image_folder(order.image.id) / "build.json", json.dumps(asdict(made), indent=2) + "\n")
    if before and before.digest != digest:
        # The image that this one replaces keeps its layers from being collected. Docker refuses to remove one that is
        # in use or has another name: then it is somebody's.
        _docker(engine, "image", "rm", before.digest)
    return made


def _digests(names: Sequence[str], engine: Engine) -> dict[str, str]:
    """The engine's ids of those images that it has, by name (with the containerd store: the manifests' digests)."""
    if not names:
        return {}
    # Fails where one of them is not there, and tells of the others all the same.
    done = _docker(engine, "image", "inspect", "--format", "{{.Id}}{{range .RepoTags}} {{.}}{{end}}", *names)
    lines = filter(None, map(str.split, done.stdout.splitlines()))
    return {name: digest for digest, *tags in lines for name in tags}


def _docker(engine: Engine, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], env=engine.environ(), capture_output=True, text=True)
