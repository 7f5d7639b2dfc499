"""What a job measured, attached to its image: once, beside other jobs' results, and only where it is good."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images import engine
from rdma_images.core.errors import RefusedError
from rdma_images.jobs.results import evidence
from rdma_images.jobs.results.result import Result
from rdma_images.publish import statement
from rdma_images.publish.attach import attachments, read_content, trust_all
from rdma_images.publish.attachment_checks import check_attachment
from rdma_images.publish.publisher import Publisher
from rdma_images.registry.client import OCI_MANIFEST, Manifest, Repository, canonical
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
    line_rate=None,
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


def repository(image: str) -> Repository:
    host, _, name = image.partition("/")
    return Repository(Connection(host, lambda: None), name.partition("@")[0])


def publisher() -> Publisher:
    return Publisher(lambda: engine.ensure(print), lambda _: None)


def test_results_of_several_jobs_are_one_statement(image: str) -> None:
    other = replace(GOOD, job="nccl-p6-4", instance="p6-b200.48xlarge", nodes=4)
    again = replace(GOOD, sentence="the channels use EFA, faster")
    new = [evidence.attach_result(result, image, publisher()).new for result in (GOOD, other, again, again)]
    assert new == [True, True, True, False]
    assert evidence.newest_results(repository(image), IMAGE.digest, trust_all) == (other, again)


def test_verify_says_what_was_measured_and_of_what(image: str) -> None:
    evidence.attach_result(GOOD, image, publisher())
    (entry,) = attachments(repository(image), IMAGE.digest)
    content = read_content(repository(image), entry.digest)
    (finding,) = check_attachment(statement.RESULTS, content, IMAGE.digest, ())
    assert finding.holds
    assert finding.detail == "2 x p5.48xlarge: the channels use EFA; 2026-11-22T07:00:00+00:00"
    (moved,) = check_attachment(statement.RESULTS, content, "sha256:" + "0" * 64, ())
    assert moved.holds is False
    (strange,) = check_attachment(statement.RESULTS, b'{"predicateType": 1, "predicate": []}', IMAGE.digest, ())
    assert strange.detail.startswith("cannot be read")


def test_what_is_no_evidence_is_not_attached(image: str) -> None:
    with pytest.raises(RefusedError, match="only a result with exit code 0 is attached"):
        evidence.attach_result(replace(GOOD, exit_code=1, sentence="TCP"), image, publisher())
    with pytest.raises(RefusedError, match="name the image that it ran"):
        evidence.attach_result(replace(GOOD, digest="sha256:" + "0" * 64), image, publisher())
