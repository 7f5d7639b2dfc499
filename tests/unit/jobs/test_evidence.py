"""What a job measured, attached to its image: once, beside other jobs' results, and only where it is good."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images import engine
from rdma_images.core.errors import RefusedError
from rdma_images.jobs.results import evidence
from rdma_images.jobs.results.result import ExpectedBandwidth, Result
from rdma_images.publish import push_display, statement, verify
from rdma_images.publish.attach import attachments, read_content
from rdma_images.publish.attachment_checks import check_attachment
from rdma_images.publish.publisher import Publisher
from rdma_images.registry import registries
from rdma_images.registry.client import (
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    Repository,
    canonical,
    sha256_digest,
)
from rdma_images.registry.connection import Connection
from tests.support.publish_doubles import Store, served

IMAGE = Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2, "layers": []}))
GOOD = Result(
    job="nccl-p5-2",
    digest=IMAGE.digest,
    instance="p5.48xlarge",
    nodes=2,
    fabric="efa",
    runs=(),
    expected=ExpectedBandwidth(line_rate=None),
    sentence="the channels use EFA",
    exit_code=0,
    time="2026-11-22T07:00:00+00:00",
)


@pytest.fixture(name="image")
def _image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    monkeypatch.setenv("RDMA_IMAGES_REGISTRIES", str(tmp_path / "none"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with served(Store().handler()) as host:
        Repository(Connection(host, lambda: None), "team/image").put_manifest(IMAGE.digest, IMAGE)
        yield f"{host}/team/image@{IMAGE.digest}"


def publisher() -> Publisher:
    return Publisher(lambda: engine.ensure(print), push_display.LineProgress(lambda _: None))


def test_results_of_several_jobs_are_one_statement(image: str) -> None:
    other = replace(GOOD, job="nccl-p6-4", instance="p6-b200.48xlarge", nodes=4)
    again = replace(GOOD, sentence="the channels use EFA, faster")
    assert [evidence.publish(result, image, publisher()).new for result in (GOOD, other, again, again)] == [
        True,
        True,
        True,
        False,
    ]
    assert evidence.fetch(image) == (other, again)


def test_one_of_several_results_is_named(image: str) -> None:
    evidence.publish(GOOD, image, publisher())
    assert evidence.is_reference(image)
    assert not evidence.is_reference("build/jobs/x/runs/y")
    assert evidence.fetch_by_reference(image) == GOOD
    other = replace(GOOD, job="nccl-p6-4")
    evidence.publish(other, image, publisher())
    assert evidence.fetch_by_reference(f"{image}#nccl-p6-4") == other
    with pytest.raises(RefusedError, match=r"2 results\nname one of its jobs after #: nccl-p5-2, nccl-p6-4"):
        evidence.fetch_by_reference(image)
    with pytest.raises(RefusedError, match="0 results"):
        evidence.fetch_by_reference(f"{image}#another")


def test_verify_says_what_was_measured_and_of_what(image: str) -> None:
    evidence.publish(GOOD, image, publisher())
    host, _, name = image.partition("/")
    repository = Repository(Connection(host, lambda: None), name.partition("@")[0])
    (entry,) = attachments(repository, IMAGE.digest)
    content = read_content(repository, entry.digest)
    (finding,) = check_attachment(statement.RESULTS, content, IMAGE.digest, ())
    assert finding.holds
    assert finding.detail == "2 x p5.48xlarge: the channels use EFA; 2026-11-22T07:00:00+00:00"
    (moved,) = check_attachment(statement.RESULTS, content, "sha256:" + "0" * 64, ())
    assert moved.holds is False
    (strange,) = check_attachment(statement.RESULTS, b'{"predicateType": 1, "predicate": []}', IMAGE.digest, ())
    assert strange.detail.startswith("cannot be read")


@pytest.fixture(name="index")
def _index(image: str) -> tuple[Repository, Manifest, dict[str, str]]:
    """Return an index over two images, in the same repository: its digest, and theirs by architecture."""
    host, _, name = image.partition("/")
    repository = Repository(Connection(host, lambda: None), name.partition("@")[0])
    listed, members = [], {}
    for architecture in ("amd64", "arm64"):
        body = canonical({"os": "linux", "architecture": architecture, "config": {}})
        repository.put_blob(body)
        config = Descriptor("application/vnd.oci.image.config.v1+json", sha256_digest(body), len(body))
        member = Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2, "config": config.as_json(), "layers": []}))
        repository.put_manifest(member.digest, member)
        members[architecture] = member.digest
        platform = {"os": "linux", "architecture": architecture}
        listed.append({**member.descriptor.as_json(), "platform": platform})
    manifest = Manifest(OCI_INDEX, canonical({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}))
    repository.put_manifest(manifest.digest, manifest)
    return repository, manifest, members


def attached_jobs(ref: str) -> dict[str, list[str]]:
    """Return the jobs' results that `invoke verify` shows of each manifest, by its digest."""
    verifications = verify.verify(ref, registries.load_if_present().for_host(ref.partition("/")[0]), None)
    shown_jobs = {
        verification.ref.partition("@")[2]: [f.detail for f in verification.findings if f.check == "job result"]
        for verification in verifications
    }
    assert not any(
        f.holds is False for verification in verifications for f in verification.findings if f.check == "job result"
    )
    return {digest: details for digest, details in shown_jobs.items() if details}


def test_a_result_of_an_index_is_found_from_it_and_from_the_image_that_ran(
    index: tuple[Repository, Manifest, dict[str, str]],
) -> None:
    repository, index_manifest, members = index
    ref = f"{repository.ref}@{index_manifest.digest}"
    result = replace(GOOD, digest=index_manifest.digest)
    evidence.publish(result, ref, publisher())
    assert attached_jobs(ref).keys() == {index_manifest.digest, members["amd64"]}
    assert attached_jobs(f"{repository.ref}@{members['amd64']}").keys() == {members["amd64"]}
    assert attached_jobs(f"{repository.ref}@{members['arm64']}") == {}
    assert evidence.fetch(ref) == (result,)


def test_a_result_of_one_image_is_found_from_the_index(index: tuple[Repository, Manifest, dict[str, str]]) -> None:
    repository, index_manifest, members = index
    result = replace(GOOD, digest=members["arm64"])
    evidence.publish(result, f"{repository.ref}@{members['arm64']}", publisher())
    ref = f"{repository.ref}@{index_manifest.digest}"
    assert attached_jobs(ref).keys() == {members["arm64"]}
    assert evidence.fetch_by_reference(ref) == result


def test_what_is_no_evidence_is_not_attached(image: str) -> None:
    with pytest.raises(RefusedError, match="only a result with exit code 0 is attached"):
        evidence.publish(replace(GOOD, exit_code=1, sentence="TCP"), image, publisher())
    with pytest.raises(RefusedError, match="name the image that it ran"):
        evidence.publish(replace(GOOD, digest="sha256:" + "0" * 64), image, publisher())
    with pytest.raises(RefusedError, match=r"has no job results\n.*--attach"):
        evidence.fetch(image)
