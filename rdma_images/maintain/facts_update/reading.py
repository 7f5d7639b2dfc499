"""A row of facts as it was read just now, beside what the facts say of it."""

from collections.abc import Mapping
from dataclasses import dataclass

Value = str | tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """What a table should say of one version. Values are as written in YAML: words, and tuples of words."""

    file: str  # "torch.yaml"
    version: str
    found: Mapping[str, Value]
    known: Mapping[str, Value] | None  # None for a version that the facts do not have

    @property
    def changes(self) -> dict[str, tuple[Value, Value]]:
        """Of a known version, what the facts say otherwise: name -> (known, found); "" for what one of them lacks."""
        if self.known is None:
            return {}
        names = [*self.found, *(name for name in self.known if name not in self.found)]
        pairs = {name: (self.known.get(name, ""), self.found.get(name, "")) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
