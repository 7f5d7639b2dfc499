"""The packages of a base's Debian archive, to refuse unknown ones before a build.

The index says only what to tell the user early; what is installed is verified by apt in the image.
"""

import lzma
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain, product

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
FIELDS = re.compile(r"^(?:Package|Provides): (.*)$", re.MULTILINE)


def require_packages(images: Iterable[Image], facts: Facts, mirrors: Mirrors, progress: Progress = silent) -> None:
    """Raise RefusedError for a Debian package that the base's archives lack.

    An archive that does not answer, or has no index in this form, refuses nothing.
    """
    for image in images:
        if not image.debian_packages:
            continue
        archives = [s for s in sources.pinned(image, facts) if s.kind == "apt" and s.role == "base"]
        indexes = [address for source in archives for address in _index_addresses(source, image.platform, mirrors)]
        listed = [_index_packages(address, mirrors, progress) for address in indexes]
        names = set(chain.from_iterable(index for index in listed if index is not None))
        for package in image.debian_packages if names and None not in listed else ():
            name = package.partition("=")[0]
            if name not in names:
                similar = sorted(
                    (known for known in names if known.startswith(name) or name.startswith(known)), key=len
                )
                hint = f"did you mean {' or '.join(similar[:3])}? " if similar else ""
                raise RefusedError(
                    f"target {image.target}: debian-packages names {name}, which the archive of {image.axes['base']} "
                    f"does not have\n{hint}correct the name in matrix.yaml"
                )


def _index_addresses(source: Source, platform: str, mirrors: Mirrors) -> Iterator[str]:
    """Yield the addresses of an archive's indexes; none where only the base names the archive."""
    if address := mirrors.address(source) or source.upstream:
        for suite, component in product(source.suites, source.components.split()):
            architecture = platform.rpartition("/")[2]
            yield f"{address.rstrip('/')}/dists/{suite}/{component}/binary-{architecture}/Packages.xz"


def _index_packages(address: str, mirrors: Mirrors, progress: Progress) -> list[str] | None:
    """Return the packages of one index and the names that they provide, read once a day; None without an answer."""
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    folder = state_folder() / "archives"
    path = folder / f"{sha256(address.encode()).hexdigest()[:16]}-{day}.txt"
    if not path.exists():
        progress(f"reading which packages {address.partition('/dists/')[0]} has")
        try:
            with web.request("GET", address, mirrors, INDEX_TIMEOUT_SECONDS) as response:
                text = lzma.decompress(response.content).decode("utf-8", "replace")
        except (requests.RequestException, web.StatusError, lzma.LZMAError):
            return None
        for earlier_file in files.list_folder(folder):
            if not earlier_file.name.endswith(f"-{day}.txt"):
                earlier_file.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write(path, "\n".join(parse_index(text)))
    return path.read_text(encoding="utf-8").splitlines()


def parse_index(text: str) -> Iterator[str]:
    """Yield the name of each package in an index of an archive, and the names that it provides."""
    for names in FIELDS.findall(text):
        yield from (name.partition(" ")[0] for name in names.split(", "))
