"""Layers in a registry are neither downloaded as wheels, nor made, nor sent again."""

import hashlib
import json
from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.layers import layer_store, registry_layers
from rdma_images.layers.layer_image import LayerSet
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.recipe import Recipe
from rdma_images.publish.destination import layers_repository
from rdma_images.registry.client import OCI_MANIFEST, Manifest, Repository, canonical
from tests.support import layer_wheels
from tests.support.layer_wheels import MIRRORS
from tests.support.publish_doubles import Store


def recipes(folder: Path) -> tuple[tuple[Recipe, ...], str]:
    """Return two layers, and the index that has their wheels."""
    wheels = [layer_wheels.make(folder, name, {f"{name}/x.py": name.encode()}) for name in ("one", "two")]
    layer_recipes = [Recipe(f"wheel-{wheel.name[:3]}", (layer_wheels.locked(wheel),), "zstd") for wheel in wheels]
    return tuple(layer_recipes), layer_wheels.index(folder / "index", *wheels)


def complete(recipes: tuple[Recipe, ...], index: str, repository: Repository, lines: list[str]) -> str:
    remote = registry_layers.query_registry(LayerSet(recipes, "runtime", "linux/amd64"), repository)
    with LayerPool(remote.missing, index, MIRRORS) as pool:
        return registry_layers.complete_registry(remote, pool, repository, lines.append).ref


def test_another_machine_takes_the_layers_without_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Store, repository: Repository
) -> None:
    layer_recipes, index = recipes(tmp_path / "wheels")
    lines: list[str] = []
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "one"))
    first = complete(layer_recipes, index, repository, lines)
    assert first.startswith(f"{repository.ref}@sha256:")
    image = json.loads(registry.manifests[first.rpartition("@")[2]][1])
    for layer, recipe in zip(image["layers"], layer_recipes, strict=True):
        stored_layer = layer_store.find(recipe)
        assert stored_layer
        assert (layer["digest"], layer["size"]) == (stored_layer.runtime.digest, stored_layer.runtime.size)
        assert f"sha256:{hashlib.sha256(registry.blobs[layer['digest']]).hexdigest()}" == layer["digest"]
    registry.requests.clear()
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "two"))
    assert complete(layer_recipes, "file:///nothing", repository, lines) == first
    assert {method for method, _ in registry.requests} == {"GET"}
    assert "0 MB were sent there" in lines[-1]
    assert not (tmp_path / "two").exists() or not list((tmp_path / "two").rglob("*.whl"))


def test_only_what_a_registry_lacks_is_made_and_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Store, repository: Repository
) -> None:
    (first, second), index = recipes(tmp_path / "wheels")
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "one"))
    complete((first,), index, repository, [])
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "two"))
    registry.requests.clear()
    complete((first, second), index, repository, [])
    assert layer_store.find(first) is None
    layer = layer_store.find(second)
    assert layer is not None
    sent = [path for method, path in registry.requests if method == "PUT" and "/blobs/" in path]
    assert len(sent) == 3  # a layer, its config, and the config of both


def test_an_image_of_layers_with_settings_of_its_own_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Repository
) -> None:
    """What is built on it would inherit them, from whoever may push there."""
    layer_recipes, index = recipes(tmp_path / "wheels")
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "one"))
    good = complete(layer_recipes, index, repository, [])
    layer_set = LayerSet(layer_recipes, "runtime", "linux/amd64")
    manifest = repository.manifest(layer_set.tag)
    config = repository.config(manifest)
    config["config"]["Env"] = ["LD_PRELOAD=/opt/venv/site-packages/one/x.so"]
    digest = repository.put_blob(raw := canonical(config))
    changed = manifest.body["config"] | {"digest": digest, "size": len(raw)}
    repository.put_manifest(layer_set.tag, Manifest(OCI_MANIFEST, canonical(manifest.body | {"config": changed})))
    assert complete(layer_recipes, index, repository, []) == good
    assert repository.manifest(layer_set.tag).digest == manifest.digest


def test_a_registry_with_other_bytes_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Store, repository: Repository
) -> None:
    layer_recipes, index = recipes(tmp_path / "wheels")
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "one"))
    complete(layer_recipes, index, repository, [])
    layer_set = LayerSet(layer_recipes, "runtime", "linux/amd64")
    first_tag, second_tag = (f"runtime-{recipe.key[:40]}" for recipe in layer_recipes)
    manifest = registry.manifests.pop(layer_set.tag)
    registry.manifests[first_tag], registry.manifests[second_tag] = (
        registry.manifests[second_tag],
        registry.manifests[first_tag],
    )
    with pytest.raises(RdmaImagesError, match=r"wheel-one is sha256:\w+ there, .* this machine made sha256:\w+\nfind"):
        registry_layers.query_registry(layer_set, repository)
    registry.manifests[first_tag] = manifest
    with pytest.raises(RdmaImagesError, match=r"has 2 layers where 1 are expected\ndelete it there"):
        registry_layers.query_registry(layer_set, repository)


@pytest.mark.parametrize("address", ["nowhere", "ghcr.io/", "https://host/name", "host/UPPER"])
def test_a_place_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(RefusedError, match=r"not HOST/REPOSITORY\nwrite ghcr\.io"):
        layers_repository(address)
