"""Rebuild a published image from its attached evidence, and compare both."""

import hashlib
import json
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields, replace
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any

from zstandard import ZstdError

from rdma_images.build import build_spec, run_build, source_wheels
from rdma_images.build.build_spec import BuildSpec
from rdma_images.build.run_bake import Options
from rdma_images.core import paths, stream
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import LABEL_PREFIX, TOOL
from rdma_images.core.progress import Progress, silent
from rdma_images.engine import Engine
from rdma_images.facts import Facts
from rdma_images.inputs import sources
from rdma_images.layers import layer_store
from rdma_images.layers.recipe import layer_recipe
from rdma_images.plan.matrix import IMAGE_AXES
from rdma_images.publish import statement
from rdma_images.publish.origin_policy import is_unpinned
from rdma_images.publish.published_images import PublishedImage
from rdma_images.publish.report_versions import is_commit
from rdma_images.registry.client import Descriptor, Manifest, labels_in
from rdma_images.render import labels, wheel_layers
from rdma_images.render.bake import Compression
from rdma_images.selection import target_options
from rdma_images.selection.project import Project
from rdma_images.validate.image_layers import open_layer

ABSENT = "absent"
KINDS = {tarfile.DIRTYPE: "folder", tarfile.SYMTYPE: "symbolic link", tarfile.LNKTYPE: "hard link"}


@dataclass(frozen=True)
class BuildEvidence:
    """The build of a published image, as its provenance, manifest and labels describe it."""

    target: str
    axes: dict[str, str]
    commit: str
    repository: str
    onto: str  # "NAME@sha256:…", the image that a fabric was added to; empty for none
    dependencies: dict[str, str]  # what was downloaded: name -> digest, or what else vouches for it
    unpinned: tuple[str, ...]  # those that may be others on another day
    stand_ins: tuple[str, ...]  # ids of the sources that were replaced; empty for no rehearsal
    tool: str  # the version of this tool that built it; empty where the provenance names none
    compression: Compression


@dataclass(frozen=True)
class Difference:
    """A value of a file, or of a field of the config, that differs between the two images."""

    part: str  # "input", "config", "layer 2 of 3"
    path: str
    aspect: str  # "content", "mode", "owner", "size", "time", …
    published: str
    rebuilt: str


@dataclass(frozen=True)
class Reproduction:
    """A published image, and what came of building it again."""

    ref: str  # by digest
    rebuilt: str  # digest
    commit: str
    differences: tuple[Difference, ...]
    unpinned: tuple[str, ...]  # inputs without a digest
    reused: int  # layers of wheels that this machine had made before
    compiled: tuple[str, ...] = ()  # packages whose wheels it had compiled before
    tool: str = ""  # the version that the provenance names; empty for none

    @property
    def is_equal(self) -> bool:
        """Return whether both have the same digest, and so the same bytes."""
        return self.ref.endswith(f"@{self.rebuilt}")


@dataclass(frozen=True)
class TarEntry:
    """A file of a layer."""

    kind: str
    mode: str
    owner: str
    size: str
    time: str
    link: str
    attributes: str  # extended ones, such as capabilities
    content: str  # sha256


def read_evidence(published: PublishedImage) -> BuildEvidence:
    """Return how an image was built. Raises RefusedError where no evidence says it."""
    try:
        predicate = published.predicate(statement.PROVENANCE)
        definition = predicate["buildDefinition"]
        parameters, dependencies = definition["externalParameters"], definition["resolvedDependencies"]
        source = next(dependency for dependency in dependencies if "gitCommit" in dependency.get("digest", {}))
        base = next((dependency for dependency in dependencies if dependency["name"] == "base-image"), None)
        *_, topmost = published.manifest.layers()  # those of an image below, which stay as they are, may be others
        evidence = BuildEvidence(
            target=str(parameters["target"]),
            axes={str(axis): str(value) for axis, value in parameters["axes"].items()},
            commit=str(source["digest"]["gitCommit"]),
            repository=str(source.get("uri", "")),
            onto=f"{base['uri']}@sha256:{base['digest']['sha256']}" if base else "",
            dependencies=_pins(dependencies),
            unpinned=tuple(sorted(str(dependency["name"]) for dependency in dependencies if is_unpinned(dependency))),
            stand_ins=tuple(filter(None, labels_in(published.config).get(f"{LABEL_PREFIX}.rehearsal", "").split(","))),
            tool=str(predicate["runDetails"]["builder"]["version"].get(TOOL, "")),
            compression="gzip" if "gzip" in topmost.media_type else "zstd",
        )
        is_clean = bool(definition["internalParameters"]["clean"]) and is_commit(evidence.commit)
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        raise RefusedError(
            f"{published.ref}: has no provenance attached that says how it was built here\n"
            "reproduce an image that `publish --target` published"
        ) from None
    if not is_clean:
        raise RefusedError(
            f"{published.ref}: was built from files that are in no commit\npublish one that is built from a commit"
        )
    return evidence


def require_same_origin(published: PublishedImage, evidence: BuildEvidence) -> None:
    """Raise RefusedError for an image of another tool version or commit."""
    if evidence.tool and evidence.tool != version(TOOL):
        raise RefusedError(
            f"{published.ref}: was built by {TOOL} {evidence.tool}, and this is {version(TOOL)}, whose templates may "
            f"differ\ninstall that one: pip install {TOOL}=={evidence.tool}"
        )
    commit = labels.project_revision().commit
    if commit != evidence.commit:
        raise RefusedError(
            f"{published.ref}: was built from the commit {evidence.commit}, and {paths.PROJECT} is at "
            f"{commit}\nbuild it from there: git worktree add ../reproduce {evidence.commit}"
        )


def reproduce(
    published: PublishedImage, evidence: BuildEvidence, project: Project, engine: Engine, progress: Progress = silent
) -> Reproduction:
    """Rebuild an image with every step, and return the differences.

    Args:
        published: The image, in its registry.
        evidence: What it was built from; see require_same_origin.
        project: This folder's matrix, facts and mirrors.
        engine: Builds it.
        progress: Hears what takes long.

    Raises:
        RefusedError: The engine cannot write an image to a folder.
        RdmaImagesError: The build fails, or the registry does not answer.
    """
    if engine.store != "containerd":
        raise RefusedError(
            f"the engine {engine.name} has no containerd store, which writes images to a folder\nuse one"
        )
    revision = replace(labels.project_revision(), repository=evidence.repository or None)
    inherited_axes = IMAGE_AXES if evidence.onto else ()  # by the image below
    changes = [f"{axis}={value}" for axis, value in evidence.axes.items() if axis not in inherited_axes]
    is_rehearsal = bool(evidence.stand_ins)
    (image,) = target_options.chosen_images(project, [evidence.target], False, changes, is_rehearsal)
    spec = build_spec.build_spec(image, project, is_rehearsal, evidence.compression, progress)
    layers = wheel_layers.wheel_layers(spec.lock)
    reused = sum(layer_store.find(layer_recipe(layer, evidence.compression)) is not None for layer in layers)
    compiled = source_wheels.compiled_packages(spec, evidence.stand_ins)
    paths.BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="reproduce-", dir=paths.BUILD) as folder:
        layout = Path(folder) / "layout"
        options = Options(is_rehearsal, compression=evidence.compression, no_cache=True, layout=layout)
        run_build.build_layout(spec, project, engine, options, revision, progress)
        rebuilt = read_layout(layout)
        differences = (
            *_differing_inputs(evidence, spec, project.facts),
            *compare(published, rebuilt, layout, Path(folder), progress),
        )
    return Reproduction(
        ref=published.ref,
        rebuilt=rebuilt.digest,
        commit=evidence.commit,
        differences=differences,
        unpinned=evidence.unpinned,
        reused=reused,
        compiled=compiled,
        tool=evidence.tool,
    )


def _differing_inputs(evidence: BuildEvidence, spec: BuildSpec, facts: Facts) -> Iterator[Difference]:
    """Yield the inputs that are not those of the published image."""
    pins = _pins(map(statement.dependency, sources.pinned(spec.image, facts)))
    if evidence.tool:  # an older provenance has neither
        pins |= spec.files
    return _differing_values("input", {name: evidence.dependencies.get(name, ABSENT) for name in pins}, pins)


def read_layout(layout: Path) -> Manifest:
    """Return the manifest of the one image in a folder."""
    entry = Descriptor.from_json(json.loads((layout / "index.json").read_bytes())["manifests"][0])
    return Manifest(entry.media_type, _blob(layout, entry.digest).read_bytes())


def compare(
    published: PublishedImage, rebuilt: Manifest, layout: Path, folder: Path, progress: Progress = silent
) -> Iterator[Difference]:
    """Yield the differences between a published image and one in a layout.

    Args:
        folder: Where layers that differ are downloaded.
    """
    if rebuilt.digest == published.digest:
        return
    config = json.loads(_blob(layout, Descriptor.from_json(rebuilt.body["config"]).digest).read_bytes())
    differences = [*_differing_values("config", _flatten(published.config), _flatten(config))]
    pairs = list(zip_longest(published.manifest.layers(), rebuilt.layers()))
    for number, (first_layer, second_layer) in enumerate(pairs, start=1):
        part = f"layer {number} of {len(pairs)}"
        if first_layer is None or second_layer is None:
            differences.append(
                Difference(
                    part, "", "layer", *(layer.digest if layer else ABSENT for layer in (first_layer, second_layer))
                )
            )
        elif first_layer.digest != second_layer.digest:
            progress(f"comparing {part}")
            file = folder / first_layer.digest.removeprefix("sha256:")
            published.repository.save(first_layer.digest, file, threading.Event())
            entries = list(compare_layers(part, file, _blob(layout, second_layer.digest)))
            differences += entries or [Difference(part, "", "form of the tar", first_layer.digest, second_layer.digest)]
            file.unlink()
    yield from differences or _differing_values("manifest", _flatten(published.manifest.body), _flatten(rebuilt.body))


def compare_layers(part: str, published: Path, rebuilt: Path) -> Iterator[Difference]:
    """Yield what differs between the entries of two layers, by path."""
    first_entries, second_entries = read_entries(published), read_entries(rebuilt)
    for path in sorted(first_entries.keys() | second_entries.keys()):
        if path not in first_entries or path not in second_entries:
            kinds = [entries[path].kind if path in entries else ABSENT for entries in (first_entries, second_entries)]
            yield Difference(part, path, "file", *kinds)
            continue
        values = zip(astuple(first_entries[path]), astuple(second_entries[path]), strict=True)
        for aspect, (first_value, second_value) in zip(fields(TarEntry), values, strict=True):
            if first_value != second_value:
                yield Difference(part, path, aspect.name, first_value, second_value)


def read_entries(layer: Path) -> dict[str, TarEntry]:
    """Return the entries of a layer by path. Raises RdmaImagesError where it cannot be read."""
    try:
        with layer.open("rb") as blob, open_layer(blob) as archive:
            return {member.name: _entry(archive, member) for member in stream.members(archive)}
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error, ZstdError) as error:
        raise RdmaImagesError(
            f"the layer sha256:{layer.name} cannot be read: {error}\npublish the image again"
        ) from None


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> TarEntry:
    digest = hashlib.sha256()
    if content := archive.extractfile(member) if member.isreg() else None:
        while piece := content.read(stream.CHUNK):
            digest.update(piece)
    return TarEntry(
        kind=KINDS.get(member.type, "file" if member.isreg() else "device"),
        mode=f"{member.mode:04o}",
        owner=f"{member.uid}:{member.gid}",
        size=str(member.size),
        time=str(member.mtime),
        link=member.linkname,
        attributes=json.dumps({name: value for name, value in member.pax_headers.items() if ".xattr." in name}),
        content=digest.hexdigest(),
    )


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def _pins(dependencies: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return what pins each dependency that was downloaded, by its name."""
    pins = {}
    for dependency in dependencies:
        pin = dependency.get("digest", {}).values() or [dependency.get("annotations", {}).get("pin")]
        if value := next(iter(pin)):
            pins[str(dependency["name"])] = str(value)
    return pins


def _flatten(value: Any, path: str = "") -> dict[str, str]:
    """Return the values of a JSON document by their paths, "config.Labels.x"."""
    if isinstance(value, Mapping) and value:
        pairs: Iterable[tuple[object, Any]] = value.items()
    elif isinstance(value, list) and value:
        pairs = enumerate(value)
    else:
        return {path: json.dumps(value)}
    flattened: dict[str, str] = {}
    for key, nested_value in pairs:
        flattened |= _flatten(nested_value, f"{path}.{key}" if path else str(key))
    return flattened


def _differing_values(part: str, published: Mapping[str, str], rebuilt: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted(published.keys() | rebuilt.keys()):
        values = published.get(name, ABSENT), rebuilt.get(name, ABSENT)
        if values[0] != values[1]:
            yield Difference(part, name, "value", *values)
