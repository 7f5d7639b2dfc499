"""Publishing with the real parts: an engine, a registry with passwords, and cosign."""

import dataclasses
import json
from pathlib import Path

import pytest
from publish_parts import (
    PASSWORD,
    SUITE,
    USER,
    Registry,
    build_small,
    cosign_key,
    green,
    planned,
    red,
    registry_program,
    write_steps,
)
from test_tags import another

from rdma_images import build, matrix, paths
from rdma_images import engine as engines
from rdma_images.errors import RefusedError
from rdma_images.publish import join, publication, publish
from rdma_images.publish.client import OCI_INDEX, OCI_MANIFEST, Manifest, canonical
from rdma_images.publish.destination import destination
from rdma_images.publish.keys import Signer, Trust
from rdma_images.publish.progress import Lines
from rdma_images.publish.push import Pace
from rdma_images.publish.send import Means
from rdma_images.publish.verify import verify

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def engine():
    return engines.ensure(print)


@pytest.fixture(scope="module")
def program():
    return registry_program()


@pytest.fixture
def registry(program, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_REGISTRY_USER", USER)
    monkeypatch.setenv("TEST_REGISTRY_PASSWORD", PASSWORD)
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    made = Registry(program, tmp_path / "registry").start()
    yield made
    made.kill()


@pytest.fixture
def small(engine, tmp_path):
    made = build_small(engine, tmp_path / "context", tmp_path.name.lower())
    yield made
    client = engines.client(engine)
    client.images.remove(made.ref, force=True)
    client.close()


@pytest.fixture
def means(engine):
    said: list[str] = []
    made = Means(engine=lambda: engine, watcher=Lines(said.append), pace=Pace(3, 0.1, 5))
    return made, said


def items(*images, allow_red=()):
    return publish.items(images, images, matrix.load(), SUITE, allow_red)


def test_an_image_arrives_with_its_proof_and_is_left_alone_afterwards(registry, small, means):
    image = planned()
    write_steps(image, *green(image, small))
    means, _ = means
    build.keep_history([green(image, small)[0]], means.engine(), None)
    (first,) = publish.publish(items(image), {"local": registry.entry()}, means)
    assert first.error == ""
    assert first.place.result == "pushed"
    assert first.place.ref == f"{registry.host}/training/efa-pytorch@{small.digest}"
    assert first.place.traffic.pushed == first.place.bytes > 0
    assert registry.tags("training/efa-pytorch") == {image.tag, "2.15", "latest"}
    assert [one.title for one in first.place.attached] == [
        "provenance.json",
        "buildkit.json",
        "sbom.cdx.json",
        "report.json",
    ]

    written = publication.load(image.id)
    assert written.digest == small.digest
    assert written.measured["python"].startswith("3.13.")

    means = dataclasses.replace(means, engine=lambda: pytest.fail("nothing is to be sent"))
    (second,) = publish.publish(items(image), {"local": registry.entry()}, means)
    assert second.place.result == "there"
    assert not any(one.new for one in second.place.attached)
    assert second.place.tags == first.place.tags


def test_what_is_attached_can_be_verified_by_anybody_with_the_key(registry, small, means, tmp_path, monkeypatch):
    monkeypatch.setenv("COSIGN_PASSWORD", "pass phrase")
    private, public = cosign_key(tmp_path / "key")
    _, stranger = cosign_key(tmp_path / "other")
    image = planned()
    write_steps(image, *green(image, small))
    means, _ = means
    build.keep_history([green(image, small)[0]], means.engine(), None)
    means = dataclasses.replace(means, signer=Signer(str(private)))
    (outcome,) = publish.publish(items(image), {"local": registry.entry()}, means)
    assert outcome.error == ""
    ref = f"{registry.host}/training/efa-pytorch:latest"

    (good,) = verify(ref, registry.entry(), Trust(key=str(public)))
    assert good.holds, good
    assert {"BuildKit's record", "signed BuildKit's record"} <= {one.what for one in good.findings}
    assert good.ref.endswith(small.digest)
    (bad,) = verify(ref, registry.entry(), Trust(key=str(stranger)))
    assert not bad.holds
    (unsigned,) = verify(ref, registry.entry(), None)
    assert unsigned.holds
    assert any("not checked" in finding.detail for finding in unsigned.findings)


@pytest.fixture
def signing(means, tmp_path, monkeypatch):
    """Means that sign, what was said, and the trust that goes with them."""
    monkeypatch.setenv("COSIGN_PASSWORD", "pass phrase")
    private, public = cosign_key(tmp_path / "key")
    means, said = means
    return dataclasses.replace(means, signer=Signer(str(private))), said, Trust(key=str(public))


def elsewhere(image, small, tmp_path, monkeypatch, finished):
    """Another machine, that built and proved the same bytes at another time and knows of no publication."""
    monkeypatch.setattr(paths, "IMAGES", tmp_path / f"elsewhere-{finished[:10]}")
    made, report = green(image, small)
    write_steps(image, dataclasses.replace(made, finished=finished), dataclasses.replace(report, started=finished))


def test_another_machine_adds_nothing_to_what_is_there(registry, small, signing, tmp_path, monkeypatch):
    means, said, trust = signing
    image = planned()
    write_steps(image, *green(image, small))
    (first,) = publish.publish(items(image), {"local": registry.entry()}, means)
    assert first.error == ""

    elsewhere(image, small, tmp_path, monkeypatch, "2026-11-22T08:00:00+00:00")
    said.clear()
    (second,) = publish.publish(items(image), {"local": registry.entry()}, means)
    assert second.error == ""
    assert [one.digest for one in second.place.attached] == [one.digest for one in first.place.attached]
    assert not any("signing" in line for line in said)
    (found,) = verify(f"{registry.host}/training/efa-pytorch:latest", registry.entry(), trust)
    assert found.holds, found


@pytest.mark.parametrize("finished", ["2026-11-20T08:00:00+00:00", "2026-11-22T08:00:00+00:00"])
def test_nothing_is_signed_that_was_not_made_here(finished, registry, small, signing, means, tmp_path, monkeypatch):
    """Whoever may push may attach what looks like ours; it gets no signature, and does not stand for ours."""
    image = planned()
    write_steps(image, *green(image, small))
    publish.publish(items(image), {"local": registry.entry()}, means[0])  # unsigned, by somebody

    elsewhere(image, small, tmp_path, monkeypatch, finished)
    means, _, trust = signing
    (outcome,) = publish.publish(items(image), {"local": registry.entry()}, means)
    assert outcome.error == ""
    assert all(one.new for one in outcome.place.attached)
    (found,) = verify(f"{registry.host}/training/efa-pytorch:latest", registry.entry(), trust)
    assert found.holds, found
    assert any(f"built {finished}" in one.detail for one in found.findings)


def test_platforms_are_joined_where_they_are_proven_and_signed_once(
    registry, small, signing, engine, tmp_path, monkeypatch
):
    means, said, trust = signing
    arm_small = build_small(engine, tmp_path / "arm", f"{tmp_path.name.lower()}-arm", platform="linux/arm64")
    amd, arm = images = (planned(), another(planned(), platform="linux/arm64"))
    for image, made in ((amd, small), (arm, arm_small)):
        write_steps(image, *green(image, made))
    place = {"local": registry.entry()}
    published = publish.publish(items(*images), place, means)
    assert [one.error for one in published] == ["", ""]

    def joined():
        said.clear()
        (outcome,) = join.join(images, matrix.load(), place, means)
        return outcome, [line for line in said if "signing" in line]

    first, signed = joined()
    assert first.tags == (amd.tag, "2.15", "latest")
    assert len(signed) == 1
    found = verify(f"{registry.host}/training/efa-pytorch:{amd.tag}", registry.entry(), trust)
    assert all(one.holds for one in found), found
    assert [one.ref.partition("@")[2] for one in found] == [first.ref.partition("@")[2], small.digest, arm_small.digest]
    assert joined() == (first, [])

    monkeypatch.setattr(paths, "IMAGES", tmp_path / "elsewhere")  # a machine that published nothing
    assert joined() == (first, [])

    repository = destination("local", registry.entry()).repository("efa-pytorch")
    whole = repository.manifest(amd.tag).body
    without_arm = Manifest(OCI_INDEX, canonical(whole | {"manifests": whole["manifests"][:1]}))
    repository.put_manifest(amd.tag, without_arm)
    dropped, left = verify(f"{registry.host}/training/efa-pytorch:{amd.tag}", registry.entry(), trust)
    assert (dropped.holds, left.holds) == (False, True), "each image is ours, the list is not"
    assert [one.what for one in dropped.findings if one.holds is False] == ["signature"]

    forged = repository.manifest(arm_small.digest).body | {"annotations": {"by": "somebody who may push"}}
    repository.put_manifest(f"{amd.tag}-arm64", Manifest(OCI_MANIFEST, canonical(forged)))
    refused, signed = joined()
    assert "was not published here, and is not proven: signature" in refused.error
    assert signed == []
    assert repository.head("latest") == first.ref.partition("@")[2]
    engines.client(engine).images.remove(arm_small.ref, force=True)


def test_a_red_check_stops_it_and_can_be_allowed_by_name(registry, small, means):
    image = planned()
    build, report = green(image, small)
    write_steps(image, build, red(report, "plugin.found"))
    with pytest.raises(RefusedError, match=r"plugin\.found.*--allow-red plugin\.found"):
        items(image)
    means, _ = means
    (outcome,) = publish.publish(items(image, allow_red=["plugin.found"]), {"local": registry.entry()}, means)
    assert outcome.error == ""
    assert publication.load(image.id).allowed_red == ("plugin.found",)
    (found,) = verify(f"{registry.host}/training/efa-pytorch:latest", registry.entry(), None)
    assert any("plugin.found" in finding.detail for finding in found.findings)


def test_credentials_are_in_no_file_and_no_line(registry, small, means, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COSIGN_PASSWORD", "pass phrase")
    private, _ = cosign_key(tmp_path / "key")
    image = planned()
    write_steps(image, *green(image, small))
    means, said = means
    means = dataclasses.replace(means, signer=Signer(str(private)))
    publish.publish(items(image), {"local": registry.entry()}, means)
    assert not any(PASSWORD in line for line in said)
    for path in (*home.rglob("*"), *(tmp_path / "images").rglob("*")):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes(), path


def test_one_registry_that_is_down_stops_no_other(registry, small, means, program, tmp_path):
    image = planned()
    write_steps(image, *green(image, small))
    means, _ = means
    dead = Registry(program, tmp_path / "dead")
    outcomes = publish.publish(items(image), {"dead": dead.entry(), "local": registry.entry()}, means)
    by_name = {one.registry: one for one in outcomes}
    assert "cannot be reached" in by_name["dead"].error
    assert by_name["local"].place.result == "pushed"
    assert set(json.loads(publication.path_of(image.id).read_text())["places"]) == {"local"}


def test_a_rebuild_in_an_immutable_registry_gets_a_tag_of_its_own(registry, small, means, engine, tmp_path):
    """The full tag stays with its first build, the short ones move on, and neither goes back for a run that is late."""
    image, entry = planned(), registry.entry(immutable=True)
    means, said = means
    other = build_small(engine, tmp_path / "other", f"{tmp_path.name.lower()}-other")
    own = f"{image.tag}-{other.digest[7:19]}"
    repository = destination("local", entry).repository("efa-pytorch")
    first, rebuilt, again, late = [
        publish.publish(items(image), {"local": entry}, means)[0]
        for made in (small, other, other, small)
        if write_steps(image, *green(image, made)) is None
    ]
    assert [one.error for one in (first, rebuilt, again, late)] == [""] * 4
    assert first.place.tags == (image.tag, "2.15", "latest")
    assert rebuilt.place.tags == again.place.tags == (own, "2.15", "latest")
    assert (rebuilt.place.result, again.place.result) == ("pushed", "there")
    assert any(f"{image.tag} stays with an earlier build" in line for line in said)
    assert late.place.tags == (image.tag,)
    assert any(f":latest stays with {other.digest}" in line for line in said)
    leads = {tag: repository.head(tag) for tag in registry.tags("training/efa-pytorch")}
    assert leads == {image.tag: small.digest, **dict.fromkeys((own, "2.15", "latest"), other.digest)}
    for tag in leads:
        (found,) = verify(f"{registry.host}/training/efa-pytorch:{tag}", entry, None)
        assert found.holds, found
    engines.client(engine).images.remove(other.ref, force=True)


def test_layers_that_users_cannot_pull_are_refused_before_a_byte_is_sent(registry, means, engine, tmp_path):
    zstd = build_small(
        engine,
        tmp_path / "zstd",
        f"{tmp_path.name.lower()}-zstd",
        output="compression=zstd,force-compression=true,oci-mediatypes=true",
    )
    image = planned()
    write_steps(image, *green(image, zstd))
    means, _ = means
    (outcome,) = publish.publish(items(image), {"local": registry.entry(compression="gzip")}, means)
    assert "zstd" in outcome.error
    assert registry.tags("training/efa-pytorch") == set()
    assert not Path(registry.storage).exists() or not any(Path(registry.storage).rglob("data"))
    engines.client(engine).images.remove(zstd.ref, force=True)
