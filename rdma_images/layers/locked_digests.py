"""locks/layers.yaml: digests by which layers are found in registries and checked.

`invoke lock --layers` writes them. Without its digest, a layer is not compared when it is made, and found in a registry
by its tag alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, Field

from rdma_images.core import atomic, files, paths, yaml_file
from rdma_images.core.errors import RdmaImagesError
from rdma_images.inputs.pins import check_digest
from rdma_images.layers import blob, layer_store
from rdma_images.layers.blob import Blob
from rdma_images.layers.layer_store import StoredLayer
from rdma_images.layers.recipe import Recipe, compressor

NAME = "layers.yaml"
HEADER = "# Written by `invoke lock --layers`; a change here is a change of the bytes of a layer.\n"

Digest = Annotated[str, AfterValidator(check_digest)]


class LockedBlob(yaml_file.Strict):
    """A layer of runtime images, or what devel images add to it; `size` compressed."""

    digest: Digest
    diff_id: Digest
    size: int
    toc: Digest | None = None  # of the table by which the layer is read in part; gzip has none


class LockedLayer(yaml_file.Strict):
    """A locked layer; `wheels` and `coder` tell a reader what its key stands for."""

    wheels: str  # the file of the wheel, or how many there are
    coder: str  # "zstd 1.5.7 level 2"
    runtime: LockedBlob
    devel: LockedBlob


class LayersLock(yaml_file.Strict):
    """locks/layers.yaml: layers by the keys of their recipes."""

    layers: dict[str, LockedLayer] = Field(default_factory=dict)


@dataclass(frozen=True)
class Digests:
    """Layers whose digests are known, by the keys of their recipes."""

    entries: Mapping[str, LockedLayer] = field(default_factory=dict)

    def blob(self, recipe: Recipe, part: str) -> Blob | None:
        """Return the layer of a recipe; None where it is not known."""
        entry = self.entries.get(recipe.key)
        if entry is None:
            return None
        expected = entry.runtime if part == "runtime" else entry.devel
        return Blob(
            blob.MEDIA_TYPES[recipe.compression], expected.digest, expected.diff_id, expected.size, expected.toc or ""
        )

    def check(self, recipe: Recipe, layer: StoredLayer) -> StoredLayer:
        """Return the layer. Raises RdmaImagesError where it differs from the lock."""
        for part in ("runtime", "devel"):
            expected, actual = self.blob(recipe, part), layer.blob(part)
            if expected and expected != actual:
                raise RdmaImagesError(
                    f"{recipe.name} ({part}): this machine made {actual.digest} of the wheels of which "
                    f"{paths.display_path(_users_file())} has {expected.digest}\n"
                    f"remove {layer_store.folder(layer.key)} and build again; where that makes the same, find out with "
                    f"another machine which is right, and remove {recipe.key} from the file if this one is"
                )
        return layer


NO_DIGESTS = Digests()


def read_digests() -> Digests:
    """Return the locked layers of the wheel and of the user. Raises RefusedError."""
    return Digests({key: entry for folder in folders() for key, entry in _read(folder / NAME).items()})


def folders() -> tuple[Path, ...]:
    """Return the folders of locks: the one that the wheel brought, then the user's own.

    In a checkout they are the same.
    """
    return tuple(dict.fromkeys((paths.DATA / "locks", paths.LOCKS)))


def save(layers: Mapping[Recipe, StoredLayer], needed_keys: Collection[str]) -> None:
    """Write the digests of layers to the lock, and remove those that nothing needs.

    `needed_keys` are the keys of the recipes of all locks.
    """
    entries = _read(_users_file())
    compressions = {recipe.compression for recipe in layers}
    stays = {
        key: entry
        for key, entry in entries.items()
        if key in needed_keys or entry.coder.partition(" ")[0] not in compressions
    }
    updated = stays | {recipe.key: _entry(recipe, layer) for recipe, layer in layers.items()}
    if updated != entries:
        atomic.write(_users_file(), serialize_layers(updated))


def serialize_layers(entries: Mapping[str, LockedLayer]) -> str:
    """Return what is written of layers: the same have the same text."""
    ordered = sorted(entries.items(), key=lambda item: (item[1].wheels, item[1].coder, item[0]))
    body = {key: entry.model_dump(mode="json", by_alias=True, exclude_none=True) for key, entry in ordered}
    return HEADER + yaml.safe_dump({"layers": body}, sort_keys=False, default_flow_style=False)


def _entry(recipe: Recipe, layer: StoredLayer) -> LockedLayer:
    parts = [
        LockedBlob(
            digest=layer_blob.digest, diff_id=layer_blob.diff_id, size=layer_blob.size, toc=layer_blob.toc or None
        )
        for layer_blob in (layer.runtime, layer.devel)
    ]
    wheels = recipe.wheels[0].file if len(recipe.wheels) == 1 else f"{len(recipe.wheels)} wheels"
    return LockedLayer(wheels=wheels, coder=compressor(recipe.compression), runtime=parts[0], devel=parts[1])


def _users_file() -> Path:
    return paths.LOCKS / NAME


def _read(file: Path) -> dict[str, LockedLayer]:
    return yaml_file.load(file, LayersLock).layers if files.exists(file) else {}
