"""A Python package that no index has, as the requirements of images and locks name it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rdma_images.core import paths

COMMIT = re.compile(
    r"(?P<address>git\+(?:https?|ssh)://\S+?)@(?P<commit>[0-9a-f]{40})(?:#subdirectory=(?P<subfolder>[^#&]+))?"
)


@dataclass(frozen=True)
class LocalPackage:
    """The address of a package that no index has, as written in a lock's requirement."""

    kind: Literal["wheel", "folder", "commit"]
    address: str  # from the folder of matrix.yaml, "./wheels/x.whl"; of a commit "https://host/repository"
    digest: str  # sha256 of the wheel, or of the project's metadata; or the commit
    subfolder: str = ""  # of a repository

    @property
    def origin(self) -> str:
        """Return its origin, as locks and the image's label have it."""
        if self.kind != "commit":
            return self.address
        return f"git+{self.address}@{self.digest}" + (f"#subdirectory={self.subfolder}" if self.subfolder else "")

    @property
    def path(self) -> Path:
        """Return the wheel or folder on this machine; a commit has none."""
        return paths.PROJECT / self.address


def parse(url: str | None) -> LocalPackage | None:
    """Return the package of an address that the plan pinned; None for a package of an index."""
    if not url:
        return None
    if match := COMMIT.fullmatch(url):
        return LocalPackage("commit", match["address"].removeprefix("git+"), match["commit"], match["subfolder"] or "")
    address, _, fragment = url.partition("#")
    kind, _, digest = fragment.partition("=")
    return LocalPackage("wheel" if kind == "sha256" else "folder", address, digest)


def by_name(requirements: Iterable[str]) -> dict[str, LocalPackage]:
    """Return the packages of such addresses among `requirements`, by name in the normal form."""
    parsed = {canonicalize_name(line.name): parse(line.url) for line in map(Requirement, requirements)}
    return {name: package for name, package in parsed.items() if package}
