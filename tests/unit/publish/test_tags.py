"""Tags say what was measured; short ones belong to one image each."""

from collections.abc import Iterator

import pytest

from rdma_images import facts
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.inspection.measurements import Measured, MeasuredPackages, NcclFile
from rdma_images.inspection.report import Report
from rdma_images.plan import matrix, planner
from rdma_images.publish.tags import Tags, advance_tags, created_at, image_tags, measured_versions, unique_tag
from rdma_images.registry.client import OCI_INDEX, OCI_MANIFEST, Manifest, Repository, canonical
from rdma_images.registry.connection import Connection
from tests.support.case_parts import PACKAGES, case_like, recorded, report_on
from tests.support.images import with_axes
from tests.support.publish_doubles import Store, served

OLD, NEW = "2026-11-20T08:00:00Z", "2026-11-21T08:00:00.123456789Z"


@pytest.fixture(scope="module")
def all_images() -> tuple[Image, ...]:
    return planner.plan(matrix.load(), facts.load(), all_rows=True).images


@pytest.fixture(scope="module")
def default() -> Image:
    (image,) = planner.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    return image


def test_the_default_row_gets_the_short_tags(default: Image, all_images: tuple[Image, ...]) -> None:
    line = ".".join(default.version("pytorch").split(".")[:2])
    assert image_tags(default, all_images, matrix.load(), rehearsal=False) == Tags(default.tag, (line, "latest"))


def test_no_short_tag_belongs_to_two_images(all_images: tuple[Image, ...]) -> None:
    read = matrix.load()
    tags = [(image.target, tag) for image in all_images for tag in image_tags(image, all_images, read, False).short]
    assert len(tags) == len(set(tags))
    assert {target for target, tag in tags if tag == "latest"} == set(read.targets)


def test_a_rehearsal_says_so_in_every_tag(default: Image, all_images: tuple[Image, ...]) -> None:
    tags = image_tags(default, all_images, matrix.load(), rehearsal=True)
    assert all(tag.endswith("-rehearsal") for tag in (tags.full, *tags.short))


def test_an_older_line_has_its_own_short_tag_and_is_not_the_latest(default: Image) -> None:
    older = with_axes(default, pytorch="2.13.1")
    assert image_tags(older, [default, older], matrix.load(), False).short == ("2.13",)


def test_of_one_line_the_newest_has_the_short_tag(default: Image) -> None:
    old, new = with_axes(default, pytorch="2.13.1"), with_axes(default, pytorch="2.13.10")
    images = [default, old, new]
    assert image_tags(old, images, matrix.load(), False).short == ()
    assert image_tags(new, images, matrix.load(), False).short == ("2.13",)


def test_another_base_has_no_short_tag(default: Image) -> None:
    other = with_axes(default, base="ubuntu24.04")
    assert image_tags(other, [default, other], matrix.load(), False).short == ()


def test_platforms_have_their_own_tags_and_the_index_the_plain_one(default: Image) -> None:
    arm = with_axes(default, platform="linux/arm64")
    images = [default, arm]
    amd_tags, arm_tags = (image_tags(image, images, matrix.load(), False) for image in images)
    assert amd_tags.full == f"{default.tag}-amd64"
    assert arm_tags.full == f"{default.tag}-arm64"
    assert amd_tags.multi_platform == arm_tags.multi_platform == default.tag


def test_what_was_measured_confirms_the_tag(default: Image) -> None:
    measured = measured_versions(default, report_on(default))
    assert measured["pytorch"] == default.version("pytorch")
    assert measured["python"] == f"{default.version('python')}.7"


LIES = {"pytorch": "1.0", "cuda": "1.0", "nccl": "1.0", "python": "1.0", "base": "ubuntu1.0"}


@pytest.mark.parametrize("component", LIES)
def test_a_tag_that_would_lie_is_refused(default: Image, component: str) -> None:
    with pytest.raises(RefusedError, match=f"the tag would say {component}"):
        measured_versions(default, report_on(default, facts=case_like(default, versions={component: LIES[component]})))


def test_what_was_not_measured_is_not_tagged(default: Image) -> None:
    measured = case_like(default)
    empty = measured.model_copy(update={"measured": Measured()})
    with pytest.raises(RefusedError, match="not measured"):
        measured_versions(default, report_on(default, facts=empty))


def with_plugin(version: str) -> MeasuredPackages:
    return PACKAGES.model_copy(update={"dpkg": {"libnccl-ofi": version}})


def test_the_plugin_is_measured_where_the_installer_brought_it(default: Image) -> None:
    version = default.version("aws-ofi-nccl")
    report = report_on(default, facts=case_like(default, with_plugin(f"{version}-1")))
    assert measured_versions(default, report)["aws-ofi-nccl"] == version
    with pytest.raises(RefusedError, match="the tag would say aws-ofi-nccl"):
        measured_versions(default, report_on(default, facts=case_like(default, with_plugin("1.0.0-1"))))


def test_another_platform_than_was_measured_is_not_tagged(default: Image) -> None:
    arm = with_axes(default, platform="linux/arm64")
    with pytest.raises(RefusedError, match="is for linux/amd64, but linux/arm64 was measured"):
        measured_versions(default, report_on(arm))
    measured = case_like(arm)
    variant = measured.subject.model_copy(update={"platform": "linux/arm64/v8"})
    assert measured_versions(arm, report_on(arm, facts=measured.model_copy(update={"subject": variant})))


FULL = "2.15.0-cu13.2-nccl2.30.7-py3.13-debian13"


def test_the_tag_of_one_build_has_its_digest() -> None:
    digest = "sha256:0123456789abcdef"
    assert unique_tag(FULL, digest) == f"{FULL}-0123456789ab"
    assert unique_tag(f"{FULL}-rehearsal", digest) == f"{FULL}-0123456789ab-rehearsal"


@pytest.fixture(scope="module")
def measurements() -> Image:
    (image,) = planner.plan(matrix.load(), facts.load(), targets=["efa-nccl-tests"]).images
    return image


def without_torch(image: Image, *banners: str) -> Report:
    """Return a report of an image that has libraries of NCCL, but no torch to name one."""
    inspection = case_like(image)
    tree = recorded().measured.tree
    assert tree
    nccl_files = {f"/{number}/libnccl.so.2": NcclFile(banner=text) for number, text in enumerate(banners)}
    libraries = tree.libraries.model_copy(update={"nccl": nccl_files})
    measured = inspection.measured.model_copy(update={"tree": tree.model_copy(update={"libraries": libraries})})
    return report_on(image, facts=inspection.model_copy(update={"measured": measured}))


def test_without_torch_nccl_tells_its_version_and_cudas_major(measurements: Image) -> None:
    measured = measured_versions(measurements, without_torch(measurements, "2.31.2+cuda13.3"))
    assert (measured["nccl"], measured["cuda"]) == ("2.31.2", "13")


@pytest.mark.parametrize("banners", [("2.30.7+cuda13.3",), ("2.31.2+cuda12.9",), ("2.31.2+cuda13.3",) * 2, ()])
def test_without_torch_a_tag_that_would_lie_is_refused(measurements: Image, banners: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError):
        measured_versions(measurements, without_torch(measurements, *banners))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def repository(store: Store) -> Iterator[Repository]:
    with served(store.handler()) as host:
        yield Repository(Connection(host, lambda: None), "r")


def put(repository: Repository, created: int | str | None, seed: str = "") -> Manifest:
    config = repository.put_blob(canonical({"created": created, "seed": seed}))
    manifest = Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2, "config": {"digest": config}, "layers": []}))
    repository.put_manifest(manifest.digest, manifest)
    return manifest


def test_forward_and_never_back(repository: Repository) -> None:
    lines: list[str] = []
    old, new = put(repository, OLD), put(repository, NEW)
    assert advance_tags(["latest", "2.15"], old.digest, repository, lines.append) == ("latest", "2.15")
    assert advance_tags(["latest"], new.digest, repository, lines.append) == ("latest",)
    assert lines == []
    assert advance_tags(["latest", "2.15"], old.digest, repository, lines.append) == ("2.15",)
    assert repository.find_digest("latest") == new.digest
    assert f":latest stays with {new.digest}, whose sources are of 2026-11-21 08:00 UTC" in lines[0]


def test_a_rebuild_of_the_same_sources_is_no_step_back(repository: Repository) -> None:
    first, second = put(repository, NEW), put(repository, NEW, "rebuilt")
    advance_tags(["latest"], first.digest, repository, print)
    assert advance_tags(["latest"], second.digest, repository, print) == ("latest",)
    assert repository.find_digest("latest") == second.digest


@pytest.mark.parametrize("created", [None, "", "yesterday", 3])
def test_what_does_not_say_when_it_was_made_gives_way(created: int | str | None, repository: Repository) -> None:
    advance_tags(["latest"], put(repository, created).digest, repository, print)
    assert advance_tags(["latest"], put(repository, OLD).digest, repository, print) == ("latest",)


def test_an_index_is_as_new_as_its_newest_image(repository: Repository) -> None:
    members = [manifest.descriptor.as_json() for manifest in (put(repository, OLD), put(repository, NEW))]
    index = Manifest(OCI_INDEX, canonical({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": members}))
    repository.put_manifest("joint", index)
    assert created_at(index.digest, repository) == created_at(put(repository, NEW).digest, repository)
