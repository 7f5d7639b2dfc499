"""What a tag says of its image, and how it is held against what was measured."""

import re

import pytest

from rdma_images.validate.pytest_plugin import Requirement, UnmetError
from tests.unit.validators.test_rules import case
from validators.image import test_tag as image_tag


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        (
            "r/efa-pytorch:2.15.0-cu13.2-nccl2.30.7-efa1.50.0-ofi1.21.1-py3.13-debian13",
            {
                "pytorch": "2.15.0",
                "cuda": "13.2",
                "efa-installer": "1.50.0",
                "aws-ofi-nccl": "1.21.1",
                "python": "3.13",
                "base": "debian13",
            },
        ),
        (
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-ec2",
            {"pytorch": "2.8.0", "cuda": "12.9", "python": "3.12", "base": "ubuntu22.04"},
        ),
        ("nvcr.io/nvidia/pytorch:25.08-py3", {}),
        ("nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04", {"base": "ubuntu24.04"}),
        ("pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime", {"pytorch": "2.8.0", "cuda": "12.8"}),
        ("localhost:5000/train", {}),
        ("train@sha256:cu128", {}),
    ],
)
def test_what_a_tag_says(ref: str, expected: dict[str, str]) -> None:
    assert image_tag.versions_in_tag(ref) == expected


@pytest.mark.parametrize(
    ("tag", "wrong"),
    [
        ("t:py3.13-debian13", None),
        ("t:py3.12-debian13", "python 3.12"),
        ("t:py313", None),
        ("t:debian12", "base debian12"),
    ],
)
def test_a_tag_is_held_against_the_image(tag: str, wrong: str | None) -> None:
    inspection = case()
    subject = inspection.subject.model_copy(update={"ref": tag, "labels": {}})
    tagged, require = inspection.model_copy(update={"subject": subject}), Requirement()
    if wrong is None:
        image_tag.test_tag(tagged, require)
    else:
        with pytest.raises(UnmetError, match=re.escape(f"found: {wrong} in {tag}")):
            image_tag.test_tag(tagged, require)


def test_a_stand_in_for_the_base_brings_another_python_and_is_not_held_to_the_tag() -> None:
    labels = {"io.rdma-images.component.base": "ubuntu22.04", "io.rdma-images.rehearsal": "base-ubuntu22.04"}
    inspection = case(labels=labels)
    tagged = inspection.model_copy(
        update={"subject": inspection.subject.model_copy(update={"ref": "t:2.15.0-cu13.2-py3.10-ubuntu22.04"})}
    )
    require = Requirement()
    image_tag.test_tag(tagged, require)
    assert "python" not in require.expected
