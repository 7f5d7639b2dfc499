"""The wheel layers that an engine has: the exact blob counts, not only its content."""

from pathlib import Path

import pytest

from rdma_images.layers import engine_layers
from rdma_images.layers.blob import Blob
from rdma_images.layers.engine_layers import EngineLayers

LARGE = Blob("application/vnd.oci.image.layer.v1.tar+zstd", "sha256:" + "a" * 64, "sha256:" + "1" * 64, 100_000)
EMPTY = Blob("application/vnd.oci.image.layer.v1.tar+zstd", "sha256:" + "b" * 64, "sha256:" + "2" * 64, 18)
IDS = {LARGE.diff_id, EMPTY.diff_id}


def test_what_was_sent_counts_beside_what_images_have() -> None:
    layers = EngineLayers({LARGE.diff_id})
    assert layers.has_blob(LARGE)
    assert not layers.has_blob(EMPTY)
    layers.add([EMPTY])
    assert layers.has_blob(EMPTY)


def test_the_private_engine_has_the_blobs_whose_files_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engine_layers, "blob_file", lambda digest: tmp_path / digest.replace(":", "-"))
    layers = EngineLayers(set(IDS), private=True)
    assert not layers.has_blob(LARGE)
    (tmp_path / LARGE.digest.replace(":", "-")).touch()
    assert layers.has_blob(LARGE)
    assert not layers.has_blob(EMPTY)


def test_a_layer_of_no_image_is_not_there() -> None:
    assert not EngineLayers().has_blob(LARGE)
