"""Under which licences wheels are, as far as that is to be known before an image is built."""

from collections.abc import Mapping
from functools import cached_property

from rdma_images.facts.origin import FactsFile, Row


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
