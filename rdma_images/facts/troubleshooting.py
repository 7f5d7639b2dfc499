"""Facts about what goes wrong with jobs: its signs, the check that reports it, and the fix."""

import re
from collections.abc import Iterable, Iterator

from rdma_images.core.image import Fabric
from rdma_images.facts.origin import FactsFile, Pattern, Row


class TroubleshootingEntry(Row):
    """A fault of jobs, and the `pattern` of words that show it, if any."""

    symptom: str
    pattern: Pattern = ""
    example: str = ""  # a text in which `pattern` is found
    fabric: Fabric | None = None
    command: str  # that shows it
    healthy: str  # what the command says where nothing is wrong
    checks: tuple[str, ...]  # that report it
    fix: str

    def fits(self, text: str, fabric: Fabric | None) -> bool:
        """Return whether `text` is about it, in a job over `fabric`."""
        return bool(self.pattern) and self.fabric in (None, fabric) and re.search(self.pattern, text) is not None


class Troubleshooting(FactsFile):
    """facts/troubleshooting.yaml."""

    FILE = "troubleshooting.yaml"

    entries: dict[str, TroubleshootingEntry]

    def find_fitting(self, texts: Iterable[str], fabric: Fabric | None) -> Iterator[tuple[str, TroubleshootingEntry]]:
        """Yield the entries that the texts are about, by name, in the order of the file."""
        texts = list(texts)
        yield from (
            (name, entry) for name, entry in self.entries.items() if any(entry.fits(text, fabric) for text in texts)
        )
