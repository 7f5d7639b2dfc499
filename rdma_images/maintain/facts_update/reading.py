"""A version as its maker publishes it now, beside the row of facts about it."""

from collections.abc import Mapping
from dataclasses import dataclass

Value = str | tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """The values of one version. They are as written in YAML: words, and tuples of words."""

    file: str  # "torch.yaml"
    version: str
    found: Mapping[str, Value]
    known: Mapping[str, Value] | None  # None for a version that the facts do not have

    @property
    def changes(self) -> dict[str, tuple[Value, Value]]:
        """The values that differ: name -> (known, found), with "" for a missing one; none for a new version."""
        if self.known is None:
            return {}
        names = [*self.found, *(name for name in self.known if name not in self.found)]
        pairs = {name: (self.known.get(name, ""), self.found.get(name, "")) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
