"""A value in somebody else's YAML document: what it is, whatever it should be, and its line."""

from dataclasses import dataclass
from typing import Any

from rdma_images.core.yaml_file import ForeignDocument, YamlPath
from rdma_images.jobs.check.node_group import LocatedText

MAX_WORD_LENGTH = 2048  # characters of a word: an alias may repeat a long one a hundred thousand times


@dataclass(frozen=True)
class YamlNode:
    """A value in a YAML document and its path; None as the value of a path that leads nowhere."""

    document: ForeignDocument
    value: Any
    path: YamlPath = ()

    def lookup(self, *steps: str | int) -> "YamlNode":
        """Return the node that `steps` lead to from here."""
        value = self.value
        for step in steps:
            if isinstance(step, int):
                value = value[step] if isinstance(value, list) else None
            else:
                value = value.get(step) if isinstance(value, dict) else None
        return YamlNode(self.document, value, (*self.path, *steps))

    @property
    def mapping(self) -> dict[str, Any]:
        """Return its value, where that is a mapping; else an empty one."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list["YamlNode"]:
        """Return the entries of a list; none of anything else."""
        return [self.lookup(index) for index in range(len(self.value))] if isinstance(self.value, list) else []

    @property
    def children(self) -> list["YamlNode"]:
        """Return the values of a mapping, or the entries of a list."""
        return [self.lookup(key) for key in self.mapping] or self.items

    @property
    def line(self) -> int:
        """Return the line of the value, from 1, or that of the nearest object around it."""
        return self.document.line(*self.path)

    @property
    def text(self) -> str:
        """Return the beginning of a word; "" for none, and for a mapping or a list."""
        return self.value[:MAX_WORD_LENGTH] if isinstance(self.value, str) else ""

    @property
    def word(self) -> LocatedText | None:
        """Return the value as a word; None if it is empty, a mapping or a list."""
        return LocatedText(self.text, self.line) if self.text else None

    @property
    def words(self) -> dict[str, LocatedText]:
        """Return the words of a mapping."""
        nodes = {key: self.lookup(key) for key, value in self.mapping.items() if isinstance(value, str)}
        return {key: LocatedText(node.text, node.line) for key, node in nodes.items()}
