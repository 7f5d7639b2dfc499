"""Layers of a registry become files, checked, for the time in which an engine takes them."""

from pathlib import Path
from threading import Event

import pytest

from rdma_images.core import disk_space, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import silent
from rdma_images.layers import layer_store, remote_layers
from rdma_images.layers.blob import Blob
from rdma_images.layers.engine_layers import EngineLayers
from rdma_images.layers.layer_downloads import DownloadedLayer, _fetch, fetching
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.load_layers import LayerSet, LoadedImage
from rdma_images.publish.destination import layers_repository
from rdma_images.registry import registry_errors
from rdma_images.registry.client import CHUNK, Repository, sha256_digest
from tests.support.publish_doubles import Handler, Store, served
from tests.unit.layers.test_layer_store import MIRRORS
from tests.unit.layers.test_remote_layers import recipes

BODY = b"layer" * CHUNK
CUT = CHUNK  # bytes after which the connection breaks


def another_sends(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Repository
) -> tuple[LayerSet, LoadedImage]:
    """Return an image of two layers that another machine made and sent."""
    layer_recipes, index = recipes(tmp_path / "wheels")
    layer_set = LayerSet(layer_recipes, part, "linux/amd64")
    with monkeypatch.context() as context:
        context.setenv("RDMA_IMAGES_STATE", str(tmp_path / "other"))
        with LayerPool(layer_recipes, index, MIRRORS) as pool:
            remote = remote_layers.complete_registry(
                remote_layers.query_registry(layer_set, repository), pool, repository
            )
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    return layer_set, remote


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Repository) -> tuple[LayerSet, LoadedImage]:
    return another_sends("runtime", tmp_path, monkeypatch, repository)


def test_the_files_are_there_while_they_are_needed(
    registry: Store, repository: Repository, sent: tuple[LayerSet, LoadedImage]
) -> None:
    layer_set, remote = sent
    with fetching(layer_set, remote, repository, EngineLayers(), Event()) as source:
        for recipe, blob in zip(layer_set.recipes, remote.blobs, strict=True):
            layer = source.layer_future(recipe).result()
            assert layer.blob("runtime") == blob
            assert layer.file("runtime").read_bytes() == registry.blobs[blob.digest]
    assert not list(paths.state_folder().iterdir())


def test_what_the_engine_or_this_machine_has_is_not_downloaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    registry: Store,
    repository: Repository,
    sent: tuple[LayerSet, LoadedImage],
) -> None:
    layer_set, remote = sent
    registry.requests.clear()
    with fetching(layer_set, remote, repository, EngineLayers(loaded={blob.digest for blob in remote.blobs}), Event()):
        pass
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "other"))
    with fetching(layer_set, remote, repository, EngineLayers(), Event()) as source:
        assert [source.layer_future(recipe).result() for recipe in layer_set.recipes] == [
            layer_store.find(recipe) for recipe in layer_set.recipes
        ]
    assert not registry.requests


def test_equal_layers_are_one_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Store, repository: Repository
) -> None:
    """A second link to a file in the engine's store: writing it again would truncate both."""
    layer_set, remote = another_sends("devel", tmp_path, monkeypatch, repository)
    (digest,) = {blob.digest for blob in remote.blobs}
    registry.requests.clear()
    with fetching(layer_set, remote, repository, EngineLayers(), Event()) as source:
        first, second = (source.layer_future(recipe).result().file("devel") for recipe in layer_set.recipes)
        assert first == second
    assert [path.rpartition("/")[2] for _, path in registry.requests] == [digest]


def test_nothing_is_downloaded_after_a_stop(
    registry: Store, repository: Repository, sent: tuple[LayerSet, LoadedImage]
) -> None:
    registry.requests.clear()
    with LayerPool((), "", MIRRORS) as pool:
        pass
    with (
        fetching(*sent, repository, EngineLayers(), pool.stop) as source,
        pytest.raises(registry_errors.RegistryError, match="stopped"),
    ):
        source.layer_future(sent[0].recipes[0]).result()
    assert not registry.requests


def test_a_disk_without_space_is_reported_before_a_download(
    monkeypatch: pytest.MonkeyPatch, registry: Store, repository: Repository, sent: tuple[LayerSet, LoadedImage]
) -> None:
    registry.requests.clear()
    monkeypatch.setattr(disk_space, "free", lambda _: 1)
    with (
        pytest.raises(RdmaImagesError, match=f"downloading wheels' layers from {repository.ref} needs"),
        fetching(*sent, repository, EngineLayers(), Event()),
    ):
        pass
    assert not registry.requests


def test_other_bytes_than_the_digest_s_are_refused(
    registry: Store, repository: Repository, sent: tuple[LayerSet, LoadedImage]
) -> None:
    layer_set, remote = sent
    digest = remote.blobs[1].digest
    registry.blobs[digest] = registry.blobs[digest][::-1]
    with fetching(layer_set, remote, repository, EngineLayers(), Event()) as source:
        source.layer_future(layer_set.recipes[0]).result()
        with pytest.raises(registry_errors.ConflictError, match=f"other bytes than {digest}"):
            source.layer_future(layer_set.recipes[1]).result()


@pytest.mark.parametrize(("ranges", "sent_again"), [(True, 0), (False, CUT)])
def test_a_download_that_breaks_off_goes_on_where_it_was(tmp_path: Path, ranges: bool, sent_again: int) -> None:
    requests: list[str | None] = []
    sent = 0

    class Breaking(Handler):
        def do_GET(self) -> None:
            nonlocal sent
            requests.append(self.headers["Range"])
            start = CUT if ranges and requests[-1] else 0
            body = BODY[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(BODY) - 1}/{len(BODY)}")
            self.end_headers()
            body = body[:CUT] if len(requests) == 1 else body
            sent += len(body)
            self.wfile.write(body)
            self.close_connection = len(requests) == 1

    layer = DownloadedLayer(Blob("", sha256_digest(BODY), "", len(BODY)), tmp_path / "layer")
    with served(Breaking) as host:
        _fetch(layer, layers_repository(f"{host}/team/layers"), Event(), silent)
    assert layer.path.read_bytes() == BODY
    assert requests == [None, f"bytes={CUT}-"]
    assert sent == len(BODY) + sent_again


@pytest.mark.parametrize("partial", [BODY, BODY[::-1], b"other" * CUT], ids=["all", "other", "more"])
def test_a_partial_file_that_cannot_be_resumed_is_downloaded_anew(tmp_path: Path, partial: bytes) -> None:
    requests: list[str | None] = []

    class Ranges(Handler):
        def do_GET(self) -> None:
            requests.append(self.headers["Range"])
            if requests[-1]:
                return self.answer(416, headers={"Content-Range": f"bytes */{len(BODY)}"})
            return self.answer(200, BODY)

    layer = DownloadedLayer(Blob("", sha256_digest(BODY), "", len(BODY)), tmp_path / "layer")
    layer.path.write_bytes(partial)
    with served(Ranges) as host:
        _fetch(layer, layers_repository(f"{host}/team/layers"), Event(), silent)
    assert layer.path.read_bytes() == BODY
    assert requests == [f"bytes={len(partial)}-", *([] if partial == BODY else [None])]


def test_a_file_that_has_changed_is_reported_and_removed(tmp_path: Path, sent: tuple[LayerSet, LoadedImage]) -> None:
    layer = DownloadedLayer(sent[1].blobs[0], tmp_path / "file")
    layer.path.write_bytes(b"x")
    assert not layer.content.is_in(layer.path)
    assert "damaged since it was downloaded" in str(layer.discard("runtime"))
    assert not layer.path.exists()
