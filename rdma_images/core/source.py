"""Sources of the parts of images, and their pins."""

from dataclasses import dataclass, field
from typing import Literal

UNPINNED = "not locked"  # the pin of a source that no lock has a digest of yet
ARCHIVE_SIGNATURE = "archive-signature"
SourceKind = Literal["base", "apt", "index", "download"]


@dataclass(frozen=True)
class Source:
    """A source of bytes, before any mirror replaces it.

    `pin` says how the bytes are known to be right, as "sha256:…", "sha512:…", "openpgp:<fingerprint>" or
    "archive-signature" (apt's own).
    `context` is the name under which the Dockerfile takes a base or a download; None for apt archives and the index.
    """

    id: str  # "efa-installer-1.50.0"
    component: str  # "efa-installer"
    kind: SourceKind
    upstream: str
    pin: str
    context: str | None = None
    extra: dict[str, str] = field(default_factory=dict)  # {"signature": url, "key": url} of a signed download


@dataclass(frozen=True)
class Supply:
    """A source and where its bytes will come from in this run."""

    source: Source
    via: Literal["upstream", "mirror", "stand-in", "bootstrap", "cache"]
    address: str
    reachable: bool
    detail: str  # "200, 184 MB", "no route to host", …
