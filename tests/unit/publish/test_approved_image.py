"""What an approved image is published with."""

import dataclasses
import json

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.publish.approved_image import read_build
from tests.support.existing_images import REF, planned_onto
from tests.support.published_image import approve, make_artifacts

pytestmark = pytest.mark.usefixtures("folders")


def test_the_command_that_builds_it_names_the_image() -> None:
    with pytest.raises(RefusedError, match=f"run `invoke build --target mine --onto {REF}` first"):
        read_build(planned_onto())


def test_statements_name_their_subject_and_forms(image: Image) -> None:
    provenance, _, proof = (json.loads(artifact.content) for artifact in make_artifacts(approve(image, "sha256:ab")))
    assert provenance["subject"] == [{"name": "efa-pytorch", "digest": {"sha256": "ab"}}]
    assert provenance["predicateType"] == "https://slsa.dev/provenance/v1"
    assert provenance["predicate"]["runDetails"]["builder"]["version"] == {"docker": "26.1", "buildx": "0.13"}
    assert proof["predicate"]["report"]["digest"] == "sha256:ab"


def test_a_provenance_has_the_files_that_the_image_was_built_from(image: Image) -> None:
    item = approve(image, "sha256:ab")
    build = dataclasses.replace(item.build, files={"matrix.yaml": "c" * 64})
    provenance, *_ = make_artifacts(dataclasses.replace(item, build=build))
    dependencies = json.loads(provenance.content)["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert {"name": "matrix.yaml", "digest": {"sha256": "c" * 64}} in dependencies
