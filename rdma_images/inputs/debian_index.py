"""The packages of a base's Debian archive, to refuse unknown ones before a build.

The index says only what to tell the user early; what is installed is verified by apt in the image.
"""

import lzma
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from hashlib import sha256

import requests

from rdma_images.core import atomic, files
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.core.paths import state_folder
from rdma_images.core.progress import Progress, silent
from rdma_images.core.source import Source
from rdma_images.facts import Facts
from rdma_images.inputs import sources, web
from rdma_images.inputs.mirrors import Mirrors

INDEX_TIMEOUT_SECONDS = (5.0, 30.0)  # seconds to connect, seconds without a byte
FIELDS = re.compile(r"^(Package|Version|Provides): (.*)$", re.MULTILINE)


def require_packages(images: Iterable[Image], facts: Facts, mirrors: Mirrors, progress: Progress = silent) -> None:
    """Raise RefusedError for a Debian package that the base's archives lack.

    An archive that does not answer, or has no index in this form, refuses nothing.
    """
    for image in images:
        if not image.debian_packages:
            continue
        archives = [s for s in sources.pinned(image, facts) if s.kind == "apt" and s.extra.get("role") == "base"]
        versions: dict[str, set[str]] = {}
        for source in archives:
            if not (listed := list(_packages(source, image.platform.rpartition("/")[2], mirrors, progress))):
                return
            for name, version in listed:
                versions.setdefault(name, set()).add(version)
        if versions:
            _require_image_packages(image, versions)


def _require_image_packages(image: Image, versions: dict[str, set[str]]) -> None:
    base = image.axes["base"]
    for package in image.debian_packages:
        name, _, version = package.partition("=")
        if name not in versions:
            by_prefix = sorted((known for known in versions if known.startswith(name)), key=len)
            similar = list(dict.fromkeys([*by_prefix, *get_close_matches(name, versions, n=3, cutoff=0.85)]))[:3]
            hint = f"did you mean {' or '.join(similar)}? " if similar else ""
            raise RefusedError(
                f"target {image.target}: debian-packages names {name}, which the archive of {base} does not have\n"
                f"{hint}correct the name in matrix.yaml"
            )
        if version and version not in versions[name]:
            raise RefusedError(
                f"target {image.target}: the archive of {base} has no {name} {version}\n"
                f"it has {', '.join(sorted(versions[name]))}"
            )


def _packages(source: Source, architecture: str, mirrors: Mirrors, progress: Progress) -> Iterator[tuple[str, str]]:
    """Yield name and version of the archive's packages and provided names, if known."""
    address = mirrors.address(source) or source.upstream
    if not address:
        return
    for suite in source.extra["suites"].split():
        for component in source.extra["components"].split():
            path = f"dists/{suite}/{component}/binary-{architecture}/Packages.xz"
            yield from _index_packages(f"{address.rstrip('/')}/{path}", mirrors, progress)


def _index_packages(address: str, mirrors: Mirrors, progress: Progress) -> list[tuple[str, str]]:
    """Return the packages of one index, read from the archive once a day."""
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    folder = state_folder() / "archives"
    path = folder / f"{sha256(address.encode()).hexdigest()[:16]}-{day}.txt"
    if not path.exists():
        progress(f"reading which packages {address.partition('/dists/')[0]} has")
        try:
            with web.request("GET", address, mirrors, INDEX_TIMEOUT_SECONDS) as response:
                text = lzma.decompress(response.content).decode("utf-8", "replace")
        except (requests.RequestException, web.StatusError, lzma.LZMAError):
            return []
        for earlier_file in files.list_folder(folder):
            if not earlier_file.name.endswith(f"-{day}.txt"):
                earlier_file.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write(path, "".join(f"{name} {version}\n" for name, version in parse_index(text)))
    lines = (line.partition(" ") for line in path.read_text(encoding="utf-8").splitlines())
    return [(name, version) for name, _, version in lines]


def parse_index(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and version of each package in an index of an archive."""
    name = version = ""
    for field, value in FIELDS.findall(text):
        if field == "Package":
            name, version = value, ""
        elif field == "Version":
            version = value
            yield name, version
        else:
            yield from ((provided.partition(" ")[0], version) for provided in value.split(", "))
