"""The manifest of an image in an engine, read before anything is sent."""

import io
import json
import tarfile
from collections.abc import Iterable, Iterator

import docker

from rdma_images.engine import Engine
from rdma_images.publish import faults
from rdma_images.publish.client import Manifest

_SMALL = 1 << 20  # bytes: a manifest is smaller, nearly every layer larger


def manifest(engine: Engine, digest: str) -> Manifest:
    """The manifest of the image `digest`.

    No call of Docker's API before 1.48 tells it, so the image is saved and all but the manifest is dropped: seconds
    for gigabytes, which is why only who needs to know asks. Raises MissingError when the engine does not have it.
    """
    client = docker.APIClient(base_url=engine.host)
    try:
        for raw in _small_files(client.get_image(digest)):
            found = Manifest("", raw)
            if found.digest == digest:
                return Manifest(str(json.loads(raw).get("mediaType", "")), raw)
    except docker.errors.ImageNotFound:
        pass
    finally:
        client.close()
    raise faults.MissingError(f"the engine has no image {digest}: build it again")


def _small_files(chunks: Iterable[bytes]) -> Iterator[bytes]:
    with tarfile.open(fileobj=_Stream(chunks), mode="r|") as archive:
        for member in archive:
            if member.isfile() and member.size < _SMALL and (file := archive.extractfile(member)) is not None:
                yield file.read()


class _Stream(io.BytesIO):
    """An iterator of bytes as a file that is read forward once."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        super().__init__()
        self._chunks = iter(chunks)
        self._left = b""

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, fewer only at the end."""
        wanted = size if size is not None and size >= 0 else float("inf")
        parts = [self._left]
        held = len(self._left)
        while held < wanted and (chunk := next(self._chunks, b"")):
            parts.append(chunk)
            held += len(chunk)
        whole = b"".join(parts)
        cut = len(whole) if wanted == float("inf") else int(wanted)
        self._left = whole[cut:]
        return whole[:cut]
