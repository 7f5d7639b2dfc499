"""Licences that are known before a build."""

from rdma_images import facts
from rdma_images.inputs import lock, wheel_licenses
from rdma_images.plan import matrix, planner

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
