"""Images with Python packages that have no wheel."""

from collections.abc import Mapping

from rdma_images import facts
from rdma_images.build.build_spec import BuildSpec
from rdma_images.core import atomic, paths
from rdma_images.core.image import Image
from rdma_images.plan import matrix, planner
from rdma_images.plan.matrix import Matrix, PackageOptions
from rdma_images.render import dockerfiles
from tests.support import locks

FACTS = facts.load()


def planned_image(
    *packages: str, target: str = "efa-pytorch", options: Mapping[str, PackageOptions] | None = None, **changes: str
) -> Image:
    """Return a target's default image with these packages, which have no wheel."""
    lists = {"python_packages": packages, "source_packages": packages, "package_options": options or {}}
    extended = matrix.load().target(target).model_copy(update=lists)
    (image,) = planner.plan(Matrix(targets={target: extended}), FACTS, [target], changes=changes).images
    return image


def make_spec(image: Image | None = None) -> BuildSpec:
    image = image or planned_image("some-extension")
    wheels = locks.wheels(image)
    text = dockerfiles.render(image, wheels, locks.toolkit(image), locks.TOOLS)
    atomic.write(paths.image_folder(image.id) / "Dockerfile", text)
    return BuildSpec(image, wheels, facts.load(), "sha256:0")
