"""Platforms become one index, when all of them are there."""

import pytest
from publish_doubles import Store, served
from test_tags import another

from rdma_images import facts, matrix, plan
from rdma_images.publish import join
from rdma_images.publish.client import OCI_MANIFEST, Manifest, Repository, canonical
from rdma_images.publish.http import Connection
from rdma_images.publish.progress import Lines
from rdma_images.publish.push import Pace
from rdma_images.publish.registries import Oci
from rdma_images.publish.send import Means


@pytest.fixture
def images():
    (amd,) = plan.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    return [amd, another(amd, platform="linux/arm64")]


@pytest.fixture
def place():
    store = Store()
    with served(store.handler()) as host:
        yield Repository(Connection(host, lambda: None), "efa-pytorch"), Oci(kind="oci", host=host, credentials="none")


def put(there, tag, platform):
    there.put_manifest(tag, Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2, "for": platform})))


def joined(images, entry):
    means = Means(engine=lambda: pytest.fail("nothing is sent"), watcher=Lines(lambda _: None), pace=Pace(1))
    (outcome,) = join.join(images, matrix.load(), {"local": entry}, means)
    return outcome


def test_both_platforms_are_found_under_the_plain_tag_and_the_short_ones(images, place):
    there, entry = place
    tag = images[0].tag
    put(there, f"{tag}-amd64", "amd64")
    put(there, f"{tag}-arm64", "arm64")
    outcome = joined(images, entry)
    assert outcome.error == ""
    assert outcome.tags[0] == tag
    assert "latest" in outcome.tags
    found = there.manifest("latest").body["manifests"]
    assert [one["platform"]["architecture"] for one in found] == ["amd64", "arm64"]
    assert there.head(tag) == there.head("latest")
    assert joined(images, entry) == outcome


def test_a_platform_that_is_not_there_yet_leaves_no_tag(images, place):
    there, entry = place
    put(there, f"{images[0].tag}-amd64", "amd64")
    assert "publish linux/arm64 first" in joined(images, entry).error
    assert there.head(images[0].tag) is None


def test_one_platform_needs_no_index(images, place):
    means = Means(engine=lambda: pytest.fail("nothing is sent"), watcher=Lines(lambda _: None))
    assert join.join(images[:1], matrix.load(), {"local": place[1]}, means) == ()
