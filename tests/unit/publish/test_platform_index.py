"""Platforms become one index, of the digests that were published from here."""

from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest

from rdma_images import facts
from rdma_images.core.image import Image
from rdma_images.engine import docker_command
from rdma_images.plan import matrix, planner
from rdma_images.publish import platform_index
from rdma_images.publish.platform_index import JoinResult
from rdma_images.publish.publisher import Publisher
from rdma_images.publish.push import PushPolicy
from rdma_images.registry.client import Manifest, Repository
from rdma_images.registry.connection import Connection
from rdma_images.registry.registries import Oci
from tests.support.images import with_axes
from tests.support.publish_doubles import Store, served
from tests.support.published_image import make_index, put_image, write_publication

pytestmark = pytest.mark.usefixtures("folders")


class Engine:
    @staticmethod
    def environ() -> dict[str, str]:
        return {}


@pytest.fixture
def images() -> list[Image]:
    (amd,) = planner.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    return [with_axes(amd, platform="linux/arm64"), amd]


@pytest.fixture
def repository() -> Iterator[Repository]:
    with served(Store().handler()) as host:
        yield Repository(Connection(host, lambda: None), "efa-pytorch")


@pytest.fixture
def created(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the tags under which the double of buildx wrote an index."""
    tags: list[str] = []

    def run(_: Engine, *arguments: str, **_options: object) -> CompletedProcess[str]:
        *command, option, tag = arguments[:5]
        assert (command, option) == (["buildx", "imagetools", "create"], "--tag")
        members = [repository.manifest(ref.partition("@")[2]) for ref in arguments[5:]]
        tags.append(tag.rpartition(":")[2])
        repository.put_manifest(tags[-1], make_index(*((member, "amd64") for member in members)))
        return CompletedProcess(arguments, 0, "", "")

    monkeypatch.setattr(docker_command, "run", run)
    return tags


def publish(repository: Repository, image: Image, suffix: str = "", **more: Any) -> Manifest:
    """Put an image into the registry, and write what its publication leaves here."""
    manifest = put_image(repository, image, image.platform, **{"created": "2026-11-21T08:00:00Z"} | more)
    tag = f"{image.tag.removesuffix('-arm64')}-{image.platform.removeprefix('linux/')}{suffix}"
    write_publication(image, tags=(tag,), local=f"{repository.ref}@{manifest.digest}")
    return manifest


def joined(repository: Repository, images: list[Image]) -> JoinResult:
    entry = Oci(kind="oci", host=repository.connection.host, credentials="none")
    publisher = Publisher(Engine, lambda _: None, push_policy=PushPolicy(1))  # type: ignore[arg-type]
    (result,) = platform_index.join(images, matrix.load(), {"local": entry}, publisher)
    return result


def test_the_full_tag_and_the_short_ones_lead_to_the_index(
    repository: Repository, images: list[Image], created: list[str]
) -> None:
    manifests = [publish(repository, image) for image in reversed(images)]
    repository.put_manifest(f"{images[1].tag}-amd64", put_image(repository, images[1], created="of somebody else"))
    result = joined(repository, images)
    assert result == JoinResult("local", images[1].tag, f"{repository.ref}@{repository.find_digest(images[1].tag)}")
    index = repository.manifest(images[1].tag)
    assert [member.digest for member in index.members()] == [manifest.digest for manifest in manifests]
    assert repository.find_digest("latest") == repository.find_digest("2.15") == index.digest
    assert joined(repository, images) == result
    assert created == [images[1].tag], "an index that is there is not written again"


def test_a_rebuild_beside_an_immutable_tag_is_joined_under_a_tag_of_its_own(
    repository: Repository, images: list[Image], created: list[str]
) -> None:
    _, amd = (publish(repository, image, "-0123456789ab") for image in images)
    joined(repository, images)
    assert created == [f"{images[1].tag}-{amd.digest[7:19]}"]


def test_the_platforms_of_a_rehearsal_are_joined_as_one(
    repository: Repository, images: list[Image], created: list[str]
) -> None:
    for image in images:
        publish(repository, image, "-rehearsal")
    joined(repository, images)
    assert created == [f"{images[1].tag}-rehearsal"]
    assert repository.find_digest("latest") is None
    assert repository.find_digest("latest-rehearsal")


def test_a_late_run_moves_no_short_tag_back(repository: Repository, images: list[Image], created: list[str]) -> None:
    newer = put_image(repository, images[1], created="2026-12-01T08:00:00Z")
    repository.put_manifest("latest", newer)
    for image in images:
        publish(repository, image)
    assert joined(repository, images).error == ""
    assert created == [images[1].tag]
    assert repository.find_digest("latest") == newer.digest


def test_a_platform_that_was_not_published_from_here_is_named(repository: Repository, images: list[Image]) -> None:
    publish(repository, images[1])
    error = f"{images[0].id}: no publication.json here says that it is in local\nrun `invoke publish "
    assert joined(repository, images).error.startswith(error)


def test_an_image_of_one_platform_is_not_joined(images: list[Image]) -> None:
    assert platform_index.by_multi_platform_tag(images[1:], matrix.load()) == []
