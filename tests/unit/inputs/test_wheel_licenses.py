"""Licences that are known before a build, and those that a target denies."""

import pytest

from rdma_images import facts
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.core.yaml_file import loads
from rdma_images.inputs import lock, wheel_licenses
from rdma_images.plan import matrix, planner
from rdma_images.plan.matrix import Matrix, Target

DENYING = """
targets:
  efa-pytorch:
    summary: PyTorch over AWS EFA
    fabric: efa
    python-packages: [numpy]
    licenses: {deny: [DENIED]}
    default: {base: debian13, pytorch: 2.15.0, efa-installer: 1.50.0}
"""


def denying(expression: str) -> Matrix:
    return loads(DENYING.replace("DENIED", expression), Matrix, "matrix.yaml")


def target(expression: str) -> Target:
    return denying(expression).target("efa-pytorch")


# Targets whose images were not built where the licences were read: their labels say LicenseRef-unlisted.
UNREAD = ("efa-sglang", "erdma-sglang", "efa-train", "erdma-train")
UNNAMED = {"cuda-toolkit", "oss-harmony", "quack-kernels", "torchcodec", "msgpack"}


def test_every_wheel_of_the_default_images_is_listed_but_those_that_name_no_licence() -> None:
    unlisted = {
        name
        for planned in planner.plan(matrix.load(), facts.load(), all_rows=True).images
        if planned.target not in UNREAD and lock.exists(lock.lock_request(planned))
        for name, expression in wheel_licenses.wheel_licenses(lock.load(planned)).items()
        if not expression and not name.startswith("nvidia-cutlass-dsl")
    }
    assert unlisted == UNNAMED


def test_a_denied_licence_is_refused_by_name(image: Image) -> None:
    problem = wheel_licenses.license_problem(image, target("PSF-2.0"), lock.load(image))
    assert problem == (
        f"{image.id}: typing-extensions is under PSF-2.0, which the target denies\n"
        "leave the package out, or change `licenses`"
    )
    with pytest.raises(RefusedError, match=r"numpy is under .*, torch is under "):
        wheel_licenses.require_allowed(image, target("Zlib"), lock.load(image))
    wheel_licenses.require_allowed(image, target("AGPL-3.0-only"), lock.load(image))


@pytest.mark.parametrize("expression", ["AGPL3", "GPL", "agpl-3.0-only", "'MIT OR'"])
def test_what_is_no_licence_is_a_mistake_with_its_line(expression: str) -> None:
    with pytest.raises(RefusedError, match=r"^matrix.yaml:7: .* is no licence of SPDX: write its identifier"):
        denying(expression)
