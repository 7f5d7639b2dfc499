"""The record of a build: programs, and sources that were replaced."""

from collections.abc import Callable
from importlib import metadata

from rdma_images import facts
from rdma_images.build import build_record
from rdma_images.core.source import Supply
from rdma_images.engine import Engine
from rdma_images.inputs import sources
from tests.support.existing_images import existing, planned_onto

THIS = {"rdma-images": metadata.version("rdma-images")}

FACTS = facts.load()


def test_a_named_builder_takes_the_place_of_dockers_version(answering_engine: Callable[..., Engine]) -> None:
    assert build_record.programs(answering_engine(), None) == {**THIS, "buildx": "0.24", "docker": "28.2"}
    assert build_record.programs(answering_engine(), "team") == {**THIS, "buildx": "0.24", "builder": "team"}


def test_a_newer_stand_in_takes_the_place_of_the_older() -> None:
    image = planned_onto(existing(stand_ins=("base-ubuntu24.04", "efa-installer-1.42.0")))
    (installer,) = [source for source in sources.pinned(image, FACTS) if source.component == "efa-installer"]
    stood_in = Supply(installer, "stand-in", "", True, "")
    assert build_record.stand_ins_of(image, [stood_in]) == ("base-ubuntu24.04", "efa-installer-1.50.0")
    real = Supply(installer, "upstream", "", True, "")
    assert build_record.stand_ins_of(image, [real]) == ("base-ubuntu24.04", "efa-installer-1.42.0")
