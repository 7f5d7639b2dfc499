"""SOCI's index: a well-made one holds, a changed one does not."""

import json
from collections.abc import Iterator

import pytest

from rdma_images.core.image import Image
from rdma_images.publish.attach import attach
from rdma_images.publish.conversion import CONVERTED_FROM
from rdma_images.publish.soci import TYPE
from rdma_images.publish.verify import verify
from rdma_images.registry import client
from rdma_images.registry.client import OCI_MANIFEST, Descriptor, Manifest, Repository, canonical
from rdma_images.registry.connection import Connection
from rdma_images.registry.registries import Oci
from tests.support.publish_doubles import Store, served
from tests.support.published_image import approve, make_artifacts, put_image

LAYER = "sha256:" + "1" * 64


@pytest.fixture
def repository() -> Iterator[Repository]:
    with served(Store().handler()) as host:
        yield Repository(Connection(host, lambda: None), "training/efa-pytorch")


def put_original(repository: Repository, image: Image) -> Manifest:
    """Put an image with one layer and its evidence, and return its manifest."""
    body = json.loads(put_image(repository, image).raw)
    layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": LAYER, "size": 20 << 20}
    original = Manifest(OCI_MANIFEST, canonical(body | {"layers": [layer]}))
    repository.put_manifest("v1", original)
    attach(make_artifacts(approve(image, original.digest)), original.descriptor, repository)
    return original


def put_converted(
    repository: Repository,
    original: Manifest,
    layer_with_table: str = LAYER,
    with_table: bool = True,
    layer: str = LAYER,
) -> None:
    """Put what soci makes of `original` under v1-soci, with one thing changed."""
    digest = repository.put_blob(b"table") if with_table else "sha256:" + "2" * 64
    table = Descriptor("application/octet-stream", digest, 5, {"com.amazon.soci.image-layer-digest": layer_with_table})
    tables = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": Descriptor(TYPE, repository.put_blob(b"{}"), 2).as_json(),
        "layers": [table.as_json()],
    }
    soci_index = Manifest(OCI_MANIFEST, canonical(tables))
    body = json.loads(original.raw.replace(LAYER.encode(), layer.encode()))
    converted = Manifest(
        OCI_MANIFEST, canonical(body | {"annotations": {"com.amazon.soci.index-digest": soci_index.digest}})
    )
    entries = [
        converted.descriptor.as_json()
        | {"annotations": {CONVERTED_FROM: original.digest}, "platform": {"os": "linux", "architecture": "amd64"}},
        soci_index.descriptor.as_json()
        | {"annotations": {"com.amazon.soci.image-manifest-digest": converted.digest}, "artifactType": TYPE},
    ]
    for manifest in (soci_index, converted):
        repository.put_manifest(manifest.digest, manifest)
    repository.put_manifest("v1-soci", client.index(map(Descriptor.from_json, entries)))


def failures(repository: Repository) -> list[str]:
    """Return the names of what does not hold of v1-soci."""
    entry = Oci(kind="oci", host=repository.ref.partition("/")[0], credentials="none")
    verifications = verify(f"{repository.ref}:v1-soci", entry, None)
    return [
        finding.check for verification in verifications for finding in verification.findings if finding.holds is False
    ]


def test_a_converted_image_holds_by_the_evidence_of_its_original(repository: Repository, image: Image) -> None:
    put_converted(repository, put_original(repository, image))
    assert failures(repository) == []


def test_a_table_of_another_layer_does_not_hold(repository: Repository, image: Image) -> None:
    put_converted(repository, put_original(repository, image), layer_with_table="sha256:" + "3" * 64)
    assert failures(repository) == ["SOCI index"]


def test_a_table_that_did_not_arrive_does_not_hold(repository: Repository, image: Image) -> None:
    put_converted(repository, put_original(repository, image), with_table=False)
    assert failures(repository) == ["SOCI index"]


def test_other_content_than_the_original_does_not_hold(repository: Repository, image: Image) -> None:
    put_converted(repository, put_original(repository, image), layer="sha256:" + "4" * 64)
    assert failures(repository) == ["SOCI index", "original"]
