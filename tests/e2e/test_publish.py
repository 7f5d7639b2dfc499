"""Publishing with the real parts: an engine, a registry with passwords, and cosign."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.core import paths
from rdma_images.core.image import Image
from rdma_images.engine.docker_command import Engine
from rdma_images.plan import matrix
from rdma_images.publish import platform_index, publication, publish_images
from rdma_images.publish.approved_image import ApprovedImage
from rdma_images.publish.destination import LAYERS, open_destination
from rdma_images.publish.keys import Signer, Trust
from rdma_images.publish.publisher import Publisher
from rdma_images.publish.push import PushPolicy
from rdma_images.publish.verify import verify
from rdma_images.registry.client import OCI_INDEX, OCI_MANIFEST, Manifest, canonical
from tests.e2e.publish_parts import (
    PASSWORD,
    SUITE,
    USER,
    Registry,
    SlowLink,
    Small,
    build_small,
    cosign_key,
    green,
    placed,
    planned_image,
    registry_program,
    saved_blobs,
    write_steps,
)
from tests.support.images import with_axes

pytestmark = [pytest.mark.e2e, pytest.mark.part("publish")]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engines.ensure(print)


@pytest.fixture(scope="module")
def program() -> Path:
    return registry_program()


@pytest.fixture
def registry(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("TEST_REGISTRY_USER", USER)
    monkeypatch.setenv("TEST_REGISTRY_PASSWORD", PASSWORD)
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    server = Registry(program, tmp_path / "registry").start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def small(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    built = build_small(engine, tmp_path_factory.mktemp("context"), "publish", text="GNU\n")
    yield built
    client = engines.client(engine)
    client.images.remove(built.ref, force=True)
    client.close()


@pytest.fixture
def publisher(engine: Engine) -> tuple[Publisher, list[str]]:
    lines: list[str] = []
    publisher_of_engine = Publisher(engine=lambda: engine, progress=lines.append, push_policy=PushPolicy(3, 0.1, 60))
    return publisher_of_engine, lines


def items(*images: Image) -> tuple[ApprovedImage, ...]:
    return publish_images.approved_images(images, images, matrix.load(), SUITE)


def test_an_image_arrives_with_its_evidence_and_is_not_sent_again(
    registry: Registry, small: Small, publisher: tuple[Publisher, list[str]]
) -> None:
    image = planned_image()
    write_steps(image, *green(image, small))
    sender, _ = publisher
    (first,) = publish_images.publish(items(image), {"local": registry.entry()}, sender)
    assert first.error == ""
    assert placed(first).result == "pushed"
    assert placed(first).ref == f"{registry.host}/training/efa-pytorch@{small.digest}"
    assert placed(first).traffic.pushed == placed(first).bytes > 0
    assert registry.tags("training/efa-pytorch") == {image.tag, "2.15", "latest"}
    assert [attachment.title for attachment in placed(first).attached] == [
        "provenance.json",
        "sbom.cdx.json",
        "report.json",
    ]

    record = publication.PUBLICATION.read(image.id)
    assert record
    assert record.digest == small.digest
    assert record.measured["python"].startswith("3.13.")

    sender = dataclasses.replace(sender, engine=lambda: pytest.fail("nothing is to be sent"))
    (second,) = publish_images.publish(items(image), {"local": registry.entry()}, sender)
    assert placed(second).result == "present"
    assert not any(attachment.new for attachment in placed(second).attached)
    assert placed(second).tags == placed(first).tags


def test_layers_that_lie_elsewhere_in_the_registry_are_not_sent(
    registry: Registry, small: Small, publisher: tuple[Publisher, list[str]], engine: Engine
) -> None:
    image, entry = planned_image(), registry.entry()
    beside = open_destination("local", entry).repository(LAYERS)
    blobs = saved_blobs(engine, small.digest)
    wheels = Manifest(OCI_MANIFEST, blobs[small.digest]).layers()[:2]
    for wheel in wheels:
        beside.put_blob(blobs[wheel.digest])
    built, report = green(image, small)
    write_steps(
        image,
        dataclasses.replace(built, layers={locked_wheel.digest: locked_wheel.size for locked_wheel in wheels}),
        report,
    )
    link = SlowLink(registry, rate=1 << 40, cut=1 << 40)
    (outcome,) = publish_images.publish(items(image), {"local": link.entry()}, publisher[0])
    link.close()
    traffic = placed(outcome).traffic
    assert traffic.mounted == sum(locked_wheel.size for locked_wheel in wheels)
    assert traffic.pushed == placed(outcome).bytes - traffic.mounted
    assert traffic.pushed < link.sent < traffic.pushed + 500_000


def test_what_is_attached_can_be_verified_by_anybody_with_the_key(
    registry: Registry,
    small: Small,
    publisher: tuple[Publisher, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The registry's password is in no file and no line."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COSIGN_PASSWORD", "pass phrase")
    private, public = cosign_key(tmp_path / "key")
    _, stranger = cosign_key(tmp_path / "other")
    image = planned_image()
    write_steps(image, *green(image, small))
    sender, lines = publisher
    sender = dataclasses.replace(sender, signer=Signer(str(private)))
    (outcome,) = publish_images.publish(items(image), {"local": registry.entry()}, sender)
    assert outcome.error == ""
    files = [path for folder in (home, tmp_path / "images") for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
    assert [line for line in lines if PASSWORD in line] == []
    ref = f"{registry.host}/training/efa-pytorch:latest"

    (good,) = verify(ref, registry.entry(), Trust(key=str(public)))
    assert good.holds, good
    assert good.ref.endswith(small.digest)
    (bad,) = verify(ref, registry.entry(), Trust(key=str(stranger)))
    assert not bad.holds
    (unsigned,) = verify(ref, registry.entry(), None)
    assert unsigned.holds
    assert any("not checked" in finding.detail for finding in unsigned.findings)


@pytest.fixture
def signing(
    publisher: tuple[Publisher, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Publisher, list[str], Trust]:
    """Return publishers that sign, their messages, and the trust that goes with them."""
    monkeypatch.setenv("COSIGN_PASSWORD", "pass phrase")
    private, public = cosign_key(tmp_path / "key")
    sender, lines = publisher
    return dataclasses.replace(sender, signer=Signer(str(private))), lines, Trust(key=str(public))


def elsewhere(image: Image, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: str) -> None:
    """Provide another machine that built the same bytes, and knows no publication."""
    monkeypatch.setattr(paths, "IMAGES", tmp_path / f"elsewhere-{finished[:10]}")
    built, report = green(image, small)
    write_steps(image, dataclasses.replace(built, finished=finished), dataclasses.replace(report, started=finished))


def test_another_machine_adds_nothing_to_what_is_there(
    registry: Registry,
    small: Small,
    signing: tuple[Publisher, list[str], Trust],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher, lines, trust = signing
    image = planned_image()
    write_steps(image, *green(image, small))
    (first,) = publish_images.publish(items(image), {"local": registry.entry()}, publisher)
    assert first.error == ""

    elsewhere(image, small, tmp_path, monkeypatch, "2026-11-22T08:00:00+00:00")
    lines.clear()
    (second,) = publish_images.publish(items(image), {"local": registry.entry()}, publisher)
    assert second.error == ""
    evidence = [attachment.digest for attachment in placed(first).attached]
    assert [attachment.digest for attachment in placed(second).attached] == evidence
    assert not any("signing" in line for line in lines)
    (verification,) = verify(f"{registry.host}/training/efa-pytorch:latest", registry.entry(), trust)
    assert verification.holds, verification


@pytest.mark.parametrize("finished", ["2026-11-20T08:00:00+00:00", "2026-11-22T08:00:00+00:00"])
def test_nothing_is_signed_that_was_not_made_here(
    finished: str,
    registry: Registry,
    small: Small,
    signing: tuple[Publisher, list[str], Trust],
    publisher: tuple[Publisher, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever may push may attach imitations of ours; they are not signed, nor used as ours."""
    image = planned_image()
    write_steps(image, *green(image, small))
    publish_images.publish(items(image), {"local": registry.entry()}, publisher[0])  # unsigned, by somebody

    elsewhere(image, small, tmp_path, monkeypatch, finished)
    signer, _, trust = signing
    (outcome,) = publish_images.publish(items(image), {"local": registry.entry()}, signer)
    assert outcome.error == ""
    assert all(attachment.new for attachment in placed(outcome).attached)
    (verification,) = verify(f"{registry.host}/training/efa-pytorch:latest", registry.entry(), trust)
    assert verification.holds, verification
    assert any(f"built {finished}" in finding.detail for finding in verification.findings)


def test_platforms_are_joined_where_they_are_validated_and_signed_once(
    registry: Registry, small: Small, signing: tuple[Publisher, list[str], Trust], engine: Engine, tmp_path: Path
) -> None:
    publisher, lines, trust = signing
    arm_small = build_small(engine, tmp_path / "arm", f"{tmp_path.name.lower()}-arm", platform="linux/arm64")
    amd, arm = images = (planned_image(), with_axes(planned_image(), platform="linux/arm64"))
    for image, built in ((amd, small), (arm, arm_small)):
        write_steps(image, *green(image, built))
    entries = {"local": registry.entry()}
    published = publish_images.publish(items(*images), entries, publisher)
    assert [verification.error for verification in published] == ["", ""]

    def joined() -> tuple[platform_index.JoinResult, list[str]]:
        lines.clear()
        (outcome,) = platform_index.join(images, matrix.load(), entries, publisher)
        return outcome, [line for line in lines if "signing" in line]

    first, signed = joined()
    assert (first.error, first.tag) == ("", amd.tag)
    assert len(signed) == 1
    verifications = verify(f"{registry.host}/training/efa-pytorch:{amd.tag}", registry.entry(), trust)
    assert all(verification.holds for verification in verifications), verifications
    assert [verification.ref.partition("@")[2] for verification in verifications] == [
        first.ref.partition("@")[2],
        small.digest,
        arm_small.digest,
    ]
    assert joined() == (first, [])

    repository = open_destination("local", registry.entry()).repository("efa-pytorch")
    index = repository.manifest(amd.tag).body
    without_arm = Manifest(OCI_INDEX, canonical(index | {"manifests": index["manifests"][:1]}))
    repository.put_manifest(amd.tag, without_arm)
    dropped, remaining = verify(f"{registry.host}/training/efa-pytorch:{amd.tag}", registry.entry(), trust)
    assert (dropped.holds, remaining.holds) == (False, True), "each image is ours, the list is not"
    assert [finding.check for finding in dropped.findings if finding.holds is False] == ["signature"]
    engines.client(engine).images.remove(arm_small.ref, force=True)


def test_one_registry_that_is_down_stops_no_other(
    registry: Registry, small: Small, publisher: tuple[Publisher, list[str]], program: Path, tmp_path: Path
) -> None:
    image = planned_image()
    write_steps(image, *green(image, small))
    sender, _ = publisher
    dead = Registry(program, tmp_path / "dead")
    outcomes = publish_images.publish(items(image), {"dead": dead.entry(), "local": registry.entry()}, sender)
    by_name = {outcome.registry: outcome for outcome in outcomes}
    assert "is unreachable" in by_name["dead"].error
    assert (copy := by_name["local"].copy)
    assert copy.result == "pushed"
    assert set(json.loads(publication.PUBLICATION.path(image.id).read_text())["copies"]) == {"local"}


def test_a_rebuild_in_an_immutable_registry_gets_a_tag_of_its_own(
    registry: Registry, small: Small, publisher: tuple[Publisher, list[str]], engine: Engine, tmp_path: Path
) -> None:
    """The full tag stays with its first build; a late run moves no short tag back."""
    image, entry = planned_image(), registry.entry(immutable=True)
    sender, lines = publisher
    other = build_small(engine, tmp_path / "other", f"{tmp_path.name.lower()}-other")
    unique_tag = f"{image.tag}-{other.digest[7:19]}"
    repository = open_destination("local", entry).repository("efa-pytorch")
    outcomes: list[publish_images.PublishResult] = []
    for built in (small, other, other, small):
        write_steps(image, *green(image, built))
        outcomes += publish_images.publish(items(image), {"local": entry}, sender)
    first, rebuilt, again, late = outcomes
    assert [result.error for result in (first, rebuilt, again, late)] == [""] * 4
    assert placed(first).tags == (image.tag, "2.15", "latest")
    assert placed(rebuilt).tags == placed(again).tags == (unique_tag, "2.15", "latest")
    assert (placed(rebuilt).result, placed(again).result) == ("pushed", "present")
    assert any(f"{image.tag} stays with an earlier build" in line for line in lines)
    assert placed(late).tags == (image.tag,)
    assert any(f":latest stays with {other.digest}" in line for line in lines)
    leads = {tag: repository.find_digest(tag) for tag in registry.tags("training/efa-pytorch")}
    assert leads == {image.tag: small.digest, **dict.fromkeys((unique_tag, "2.15", "latest"), other.digest)}
    for tag in leads:
        (verification,) = verify(f"{registry.host}/training/efa-pytorch:{tag}", entry, None)
        assert verification.holds, verification
    engines.client(engine).images.remove(other.ref, force=True)
