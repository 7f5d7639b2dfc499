"""The build contexts of a fabric that is added to an image that exists."""

from pathlib import Path
from unittest import mock

import pytest

from rdma_images import facts
from rdma_images.build.bake_targets import Contexts
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.core.source import Supply
from rdma_images.engine.debian import bootstrap
from rdma_images.engine.docker_command import local_name
from rdma_images.inputs import availability, sources
from rdma_images.inputs.mirrors import Mirrors
from tests.support.existing_images import REF, existing, planned_onto

FACTS = facts.load()
MIRRORS = Mirrors(Path("ca.pem"))


def contexts(image: Image, folder: Path) -> tuple[dict[str, str], Contexts]:
    """Return the contexts of an image for which a stand-in takes the installer's place."""
    (base,) = availability.find_supplies([sources.source_of_base(image, FACTS)], MIRRORS)
    (installer,) = [source for source in sources.pinned(image, FACTS) if source.component == "efa-installer"]
    stood_in = Supply(installer, "stand-in", "", True, "")
    build_contexts = Contexts(FACTS, {})
    with mock.patch.object(bootstrap, "base_tar", lambda name, *_: folder / f"{name}.tar"):
        return build_contexts.for_image(image, [base, stood_in]), build_contexts


def test_the_base_is_the_image_in_the_engine(tmp_path: Path) -> None:
    by_name, _ = contexts(planned_onto(), tmp_path)
    assert by_name["base"] == f"docker-image://{local_name(REF)}"


def test_a_stand_in_is_made_on_the_distribution(tmp_path: Path) -> None:
    """In the image itself a user may be set, and no shell be there."""
    by_name, build_contexts = contexts(planned_onto(existing(user="1000")), tmp_path)
    helper = build_contexts.helpers[by_name["efa-installer"].removeprefix("target:")]
    assert helper.contexts["base"] == "target:base-debian13"
    assert build_contexts.helpers["base-debian13"].folder == tmp_path


def test_the_image_keeps_the_distribution_open(tmp_path: Path) -> None:
    """buildx closes a session that only targets below the image use, and the build fails."""
    by_name, _ = contexts(planned_onto(), tmp_path)
    assert by_name["distribution"] == "target:base-debian13"


def test_stand_ins_for_an_image_on_ubuntu(tmp_path: Path) -> None:
    image = planned_onto(existing(system="ubuntu24.04"))
    with pytest.raises(RefusedError, match=r"stand-ins for an image on ubuntu24\.04 cannot be made"):
        contexts(image, tmp_path)
