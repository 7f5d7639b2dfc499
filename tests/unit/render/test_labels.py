"""What an image says of itself is what was planned, and whether it is a rehearsal."""

from rdma_images.core.image import Image
from rdma_images.render import labels
from rdma_images.render.labels import Revision

REVISION = Revision("0123abc", 1_700_000_000, "https://example.org/repository.git")


def test_every_component_is_named(image: Image) -> None:
    label_values = labels.image_labels(image, "a summary", REVISION, [])
    for component in image.components.values():
        assert label_values[f"io.rdma-images.component.{component.name}"] == component.version


def test_an_image_to_ship_is_no_rehearsal(image: Image) -> None:
    assert "io.rdma-images.rehearsal" not in labels.image_labels(image, "", REVISION, [])


def test_a_rehearsal_names_what_stood_in(image: Image) -> None:
    label_values = labels.image_labels(image, "", REVISION, ["nccl-tests-2", "efa-installer-1"])
    assert label_values["io.rdma-images.rehearsal"] == "efa-installer-1,nccl-tests-2"


def test_the_driver_is_a_requirement(image: Image) -> None:
    label_values = labels.image_labels(image, "", REVISION, [])
    assert label_values["io.rdma-images.requires.nvidia-driver"].startswith(">=")


def test_without_a_remote_there_is_no_source(image: Image) -> None:
    assert "org.opencontainers.image.source" not in labels.image_labels(image, "", Revision("x", 0, None), [])
