"""Sources of the parts of images, and their pins."""

from dataclasses import dataclass
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
    signature: str = ""  # addresses of a signed download's signature and key
    key: str = ""
    pair: str = ""  # the same for sources that are only replaced together
    stand_in: str = ""  # address of a stand-in that is in no folder of its component; of a base, its name
    role: str = ""  # of an apt archive: the name by which the stage finds its secrets
    over: str = ""  # the role of the archive that it comes on top of
    suites: tuple[str, ...] = ()
    components: str = ""
    keyring: str = ""
    platform: str = ""  # of a base
    digest: str = ""  # of a base that is pulled
    bootstrap: str = ""  # the base that is made from Debian's archive
    laid_over: str = ""  # the folder of the stand-in that is laid over that base
    local_name: str = ""  # in the engine, of an image that was measured there


@dataclass(frozen=True)
class Supply:
    """A source and where its bytes will come from in this run."""

    source: Source
    via: Literal["upstream", "mirror", "stand-in", "bootstrap", "cache"]
    address: str
    reachable: bool
    detail: str  # "200, 184 MB", "no route to host", …
