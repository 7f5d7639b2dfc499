"""Attaching: once, found again, with and without the referrers API."""

import json
from dataclasses import replace

import pytest

from rdma_images.publish.attach import PREDICATE_TYPE, Artifact, attach, attachments, fallback_tag, read_content
from rdma_images.registry.client import OCI_MANIFEST, Manifest, Repository, canonical
from rdma_images.registry.connection import Connection
from tests.support.publish_doubles import Store, served

pytestmark = pytest.mark.usefixtures("state")
IMAGE = Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2, "layers": []}))
BILL = Artifact("application/vnd.cyclonedx+json", "sbom.cdx.json", b'{"a":1}', "2026-11-21T08:00:00+00:00")
PROOF = Artifact("application/vnd.in-toto+json", "report.json", b'{"b":2}', "2026-11-21T08:00:00+00:00", "proof", "1")


@pytest.mark.parametrize("referrers", [True, False])
def test_what_is_attached_is_found_once_however_often_it_is_attached(referrers: bool) -> None:
    store = Store(referrers=referrers)
    with served(store.handler()) as host:
        repository = Repository(Connection(host, lambda: None), "r")
        repository.put_manifest(IMAGE.digest, IMAGE)
        first = attach([BILL, PROOF], IMAGE.descriptor, repository)
        second = attach([BILL, PROOF], IMAGE.descriptor, repository)
        listed = attachments(repository, IMAGE.digest)
        assert [attachment.new for attachment in first] == [True, True]
        assert [attachment.new for attachment in second] == [False, False]
        assert sorted(attachment.artifact_type for attachment in listed) == sorted([BILL.type, PROOF.type])
        assert {read_content(repository, attachment.digest) for attachment in listed} == {BILL.content, PROOF.content}
    assert (fallback_tag(IMAGE.digest) in store.manifests) is not referrers


def test_what_others_attached_stays() -> None:
    store = Store(referrers=False)
    with served(store.handler()) as host:
        repository = Repository(Connection(host, lambda: None), "r")
        attach([BILL], IMAGE.descriptor, repository)
        attach([PROOF], IMAGE.descriptor, repository)
        assert len(attachments(repository, IMAGE.digest)) == 2


def test_the_manifest_says_what_it_belongs_to() -> None:
    store = Store()
    with served(store.handler()) as host:
        repository = Repository(Connection(host, lambda: None), "r")
        (attached,) = attach([PROOF], IMAGE.descriptor, repository)
        body = json.loads(store.manifests[attached.digest][1])
    assert body["subject"]["digest"] == IMAGE.digest
    assert body["artifactType"] == PROOF.type
    assert body["annotations"][PREDICATE_TYPE] == "proof"


@pytest.mark.parametrize("referrers", [True, False])
def test_one_that_says_the_same_in_other_bytes_is_not_attached_beside_it(referrers: bool) -> None:
    store = Store(referrers=referrers)
    later = replace(PROOF, content=b'{"b":3}', created="2026-11-22T08:00:00+00:00")
    with served(store.handler()) as host:
        repository = Repository(Connection(host, lambda: None), "r")
        (first,) = attach([PROOF], IMAGE.descriptor, repository)
        (again, other) = attach([later, replace(later, content_digest="2")], IMAGE.descriptor, repository)
        assert (again.new, again.digest) == (False, first.digest)
        assert other.new
        assert len(attachments(repository, IMAGE.digest)) == 2
