"""Facts about the environment variables that NCCL, its plugin and libfabric read."""

import difflib
from collections.abc import Collection

from rdma_images.facts.origin import FactsFile, Row

PREFIXES = ("NCCL_", "FI_", "OFI_NCCL_", "RDMAV_", "IBV_")
MIN_SIMILARITY = 0.88  # as difflib measures it: one letter of eight


class LibraryVariables(Row):
    """The variables that a library reads."""

    names: tuple[str, ...]


class Variables(FactsFile):
    """facts/variables.yaml."""

    FILE = "variables.yaml"

    libraries: dict[str, LibraryVariables]

    @property
    def names(self) -> frozenset[str]:
        """Return the variables of all libraries."""
        return frozenset(name for library in self.libraries.values() for name in library.names)

    def closest_name(self, name: str) -> str | None:
        """Return the variable most similar to `name`; None if it is read, or for none.

        The same words in another order are also similar.
        """
        if name in self.names or not name.startswith(PREFIXES):
            return None
        return closest(name, self.names)


def closest(name: str, names: Collection[str]) -> str | None:
    """Return the most similar of `names`; None if none is similar.

    One with the same words in another order is also similar; one with a word more or less is another variable.
    """
    words = sorted(name.split("_"))
    swapped = [candidate for candidate in sorted(names) if sorted(candidate.split("_")) == words]
    letters = name.replace("_", "")
    alike = [row for row in names if row.count("_") == name.count("_") or row.replace("_", "") == letters]
    return next(iter([*swapped, *difflib.get_close_matches(name, alike, n=1, cutoff=MIN_SIMILARITY)]), None)
