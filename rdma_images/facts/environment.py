"""What is known about environment variables that an image should not set."""

import re
from collections.abc import Mapping
from typing import Literal

from rdma_images.facts.origin import FactsFile, Span
from rdma_images.model import Fabric


class Variable(Span):
    """A variable, and why it should not be set. `of` is the component whose version decides whether the row holds."""

    name: str
    value: str | None = None  # a regular expression for the whole value
    fabric: Fabric | None = None
    effect: Literal["harmful", "obsolete"]
    why: str
    of: str | None = None

    def speaks_of(self, environment: Mapping[str, str], fabric: str | None, versions: Mapping[str, str]) -> bool:
        """Whether the row holds for an image of `fabric` with these components and this environment.

        An empty variable is not set: a Dockerfile cannot take away what its base sets in any other way.
        """
        value = environment.get(self.name)
        if not value or (self.fabric and self.fabric != fabric):
            return False
        if self.value and not re.fullmatch(self.value, value):
            return False
        version = versions.get(self.of or "")
        return version is None or self.holds(version)


class Environment(FactsFile):
    """facts/environment.yaml."""

    variables: dict[str, Variable]
