"""Platforms become one index, when all of them are there and somebody answers for each."""

from collections.abc import Iterator

import pytest

from rdma_images import facts
from rdma_images.core.image import Image
from rdma_images.plan import matrix, planner
from rdma_images.publish import multi_platform_index, publication
from rdma_images.publish.keys import Signer
from rdma_images.publish.publication import Publication, PublishedCopy
from rdma_images.publish.push import LayerTraffic, PushPolicy
from rdma_images.publish.push_display import LineProgress
from rdma_images.publish.send import Publisher
from rdma_images.registry.client import Manifest, Repository
from rdma_images.registry.connection import Connection
from rdma_images.registry.registries import Oci
from tests.support.publish_doubles import Store, served
from tests.support.published_image import put_image
from tests.unit.publish.test_tags import with_axes

pytestmark = pytest.mark.usefixtures("folders")


@pytest.fixture
def images() -> list[Image]:
    (amd,) = planner.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    return [amd, with_axes(amd, platform="linux/arm64")]


@pytest.fixture
def remote() -> Iterator[tuple[Repository, Oci]]:
    store = Store()
    with served(store.handler()) as host:
        yield Repository(Connection(host, lambda: None), "efa-pytorch"), Oci(kind="oci", host=host, credentials="none")


def image_tag(image: Image) -> str:
    plain = image.tag.removesuffix("-arm64")
    return f"{plain}-{image.platform.removeprefix('linux/')}"


def put(repository: Repository, image: Image, created: str = "2026-11-21T08:00:00Z") -> Manifest:
    """Return the image, put under its tag as anybody who may push could have done."""
    manifest = put_image(repository, image, image.platform, created=created)
    repository.put_manifest(image_tag(image), manifest)
    return manifest


def publish(repository: Repository, image: Image, rehearsal: tuple[str, ...] = (), **more: str) -> Manifest:
    """Return the same, and the publication of this machine that says so."""
    manifest = put(repository, image, **more)
    ref = f"{repository.ref}@{manifest.digest}"
    copy = PublishedCopy("local", ref, (image_tag(image),), "pushed", manifest.media_type, 0, 0, LayerTraffic())
    publication.write(
        Publication(
            image_id=image.id,
            target=image.target,
            fabric=image.fabric,
            digest=manifest.digest,
            platform=image.platform,
            versions={},
            measured={},
            requires={},
            suite="sha256:2",
            allowed_red=(),
            rehearsal=rehearsal,
            copies={"local": copy},
        )
    )
    return manifest


def joined(images: list[Image], entry: Oci, signer: Signer | None = None) -> multi_platform_index.JoinResult:
    publisher = Publisher(lambda: pytest.fail("nothing is sent"), LineProgress(lambda _: None), signer, PushPolicy(1))
    (outcome,) = multi_platform_index.join(images, matrix.load(), {"local": entry}, publisher)
    return outcome


def test_the_index_of_a_rehearsal_says_so_in_its_tags(images: list[Image], remote: tuple[Repository, Oci]) -> None:
    repository, entry = remote
    for image in images:
        publish(repository, image, ("efa-installer-1.50.0",) if image is images[1] else ())
    outcome = joined(images, entry)
    assert outcome.error == ""
    assert outcome.tags == (f"{images[0].tag}-rehearsal", "2.15-rehearsal", "latest-rehearsal")
    assert [repository.head(tag) is None for tag in (images[0].tag, "2.15", "latest")] == [True] * 3


def test_both_platforms_are_found_under_the_plain_tag_and_the_short_ones(
    images: list[Image], remote: tuple[Repository, Oci]
) -> None:
    repository, entry = remote
    for image in images:
        publish(repository, image)
    outcome = joined(images, entry)
    tag = images[0].tag
    assert outcome.error == ""
    assert outcome.tags == (tag, "2.15", "latest")
    manifests = repository.manifest("latest").body["manifests"]
    assert [manifest["platform"]["architecture"] for manifest in manifests] == ["amd64", "arm64"]
    assert repository.head(tag) == repository.head("latest")
    assert joined(images, entry) == outcome


def test_a_platform_that_is_not_there_yet_leaves_no_tag(images: list[Image], remote: tuple[Repository, Oci]) -> None:
    repository, entry = remote
    publish(repository, images[0])
    assert "publish linux/arm64 first" in joined(images, entry).error
    assert repository.head(images[0].tag) is None


def test_what_nobody_here_published_is_not_joined(images: list[Image], remote: tuple[Repository, Oci]) -> None:
    repository, entry = remote
    publish(repository, images[0])
    put(repository, images[1])
    assert "was not published here" in joined(images, entry).error
    assert repository.head(images[0].tag) is None


def test_what_somebody_put_in_the_place_of_ours_is_not_joined(
    images: list[Image], remote: tuple[Repository, Oci]
) -> None:
    repository, entry = remote
    for image in images:
        publish(repository, image)
    other = put(repository, images[1], created="2026-11-22T08:00:00Z")
    assert f"is {other.digest}, but" in joined(images, entry).error
    assert repository.head(images[0].tag) is None


def test_an_index_is_not_signed_over_what_is_not(images: list[Image], remote: tuple[Repository, Oci]) -> None:
    repository, entry = remote
    for image in images:
        publish(repository, image)
    assert "is not signed, but its index would be" in joined(images, entry, Signer("k")).error


def test_where_tags_do_not_change_a_rebuilt_platform_makes_an_index_with_a_tag_of_its_own(
    images: list[Image], remote: tuple[Repository, Oci]
) -> None:
    repository, entry = remote
    entry = entry.model_copy(update={"immutable": True})
    for image in images:
        publish(repository, image)
    first = joined(images, entry)
    publish(repository, images[1], created="2026-11-22T08:00:00Z")
    second = joined(images, entry)
    tag, digest = images[0].tag, second.ref.partition("@")[2]
    assert second.tags == (f"{tag}-{digest[7:19]}", "2.15", "latest")
    assert repository.head(tag) == first.ref.partition("@")[2] != digest
    assert repository.head("latest") == repository.head(second.tags[0]) == digest


def test_short_tags_do_not_go_back_to_an_older_index(images: list[Image], remote: tuple[Repository, Oci]) -> None:
    repository, entry = remote
    for image in images:
        publish(repository, image, created="2026-11-22T08:00:00Z")
    newer = joined(images, entry)
    for image in images:
        publish(repository, image)
    older = joined(images, entry)
    assert older.tags == (images[0].tag,)
    assert repository.head("latest") == newer.ref.partition("@")[2]


def test_one_platform_needs_no_index(images: list[Image], remote: tuple[Repository, Oci]) -> None:
    publisher = Publisher(engine=lambda: pytest.fail("nothing is sent"), display=LineProgress(lambda _: None))
    assert multi_platform_index.join(images[:1], matrix.load(), {"local": remote[1]}, publisher) == ()
