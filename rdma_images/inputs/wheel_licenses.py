"""The licences of an image that are known before it is built: those of its wheels."""

from collections.abc import Mapping
from functools import cached_property

from rdma_images.core.image import Image
from rdma_images.facts import facts_file
from rdma_images.facts.facts_file import FactsFile, Row
from rdma_images.inputs.wheels import Lock

UNLISTED = "LicenseRef-unlisted"  # of a wheel whose licence is not known before the build
SYSTEM = "LicenseRef-{}-packages"  # of the base's packages, which the bill of materials lists one by one
BASE_IMAGE = "LicenseRef-base-image"  # of everything in an image to which the fabric is added


class LicensedWheels(Row):
    """The wheels, by their names in the normal form, under one licence."""

    wheels: tuple[str, ...]


class Licenses(FactsFile):
    """facts/licenses.yaml, by SPDX expression."""

    FILE = "licenses.yaml"

    licenses: dict[str, LicensedWheels]

    @cached_property
    def by_wheel(self) -> Mapping[str, str]:
        """Return the expression of each wheel."""
        return {wheel: expression for expression, row in self.licenses.items() for wheel in row.wheels}


def wheel_licenses(lock: Lock) -> Mapping[str, str]:
    """Return the SPDX expression of each wheel in a lock, "" where it is not known."""
    by_wheel = facts_file.read(Licenses).by_wheel
    return {wheel.name: by_wheel.get(wheel.name, "") for wheel in lock.wheels}


def label(image: Image, lock: Lock | None) -> str:
    """Return the image's licence label: the wheels' licences, and a reference for the rest."""
    from rdma_images.core import spdx  # here, because a build with nothing to do need not wait for the list of licences

    if image.onto:
        return BASE_IMAGE
    distribution = image.axes["base"].rstrip("0123456789.").capitalize()
    expressions = {expression or UNLISTED for expression in (wheel_licenses(lock) if lock else {}).values()}
    return spdx.conjunction({*expressions, SYSTEM.format(distribution)})
