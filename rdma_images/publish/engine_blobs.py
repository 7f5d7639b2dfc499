"""Read an image's manifest and blobs from an engine."""

import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import docker

from rdma_images.core.stream import CHUNK, ChunkReader
from rdma_images.engine import Engine
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Manifest

_SMALL = 1 << 20  # bytes: a manifest is smaller, nearly every layer larger


def manifest(engine: Engine, digest: str) -> Manifest:
    """Return an image's manifest. Raises MissingError where the engine does not have it.

    No call of Docker's API before 1.48 tells it, so the image is saved and all but the manifest is dropped: seconds
    for gigabytes, so callers ask only where they need it.
    """
    with _saved_files(engine, digest) as files:
        for member, file in files:
            if member.size < _SMALL and (candidate := Manifest("", file.read())).digest == digest:
                return Manifest(str(json.loads(candidate.raw).get("mediaType", "")), candidate.raw)
    raise registry_errors.MissingError(f"the engine saves {digest} without its manifest\nbuild it again")


@contextmanager
def blob(engine: Engine, image: str, digest: str) -> Iterator[IO[bytes]]:
    """Yield a blob of an image as a file. Raises MissingError where the engine has none."""
    with tempfile.TemporaryFile() as copy:
        if not _copy_blob(engine, image, digest, copy):
            raise registry_errors.MissingError(f"the engine saves {image} without its {digest}\nbuild it again")
        copy.seek(0)
        yield copy


def _copy_blob(engine: Engine, image: str, digest: str, target_file: IO[bytes]) -> bool:
    with _saved_files(engine, image) as files:
        for member, file in files:
            if member.name.rpartition("/")[2] == digest.removeprefix("sha256:"):
                shutil.copyfileobj(file, target_file, CHUNK)
                return True
    return False


@contextmanager
def _saved_files(engine: Engine, digest: str) -> Iterator[Iterator[tuple[tarfile.TarInfo, IO[bytes]]]]:
    """Yield the files of a saved image; read each before taking the next."""
    with archive(engine, digest) as chunks:
        saved = io.BufferedReader(ChunkReader(chunks), CHUNK)
        with tarfile.open(fileobj=saved, mode="r|", bufsize=CHUNK) as tar:
            members = ((member, tar.extractfile(member)) for member in tar)
            yield ((member, file) for member, file in members if file is not None)


@contextmanager
def archive(engine: Engine, digest: str) -> Iterator[Iterator[bytes]]:
    """Yield the image `digest` as it is saved, in pieces: a tar of an OCI layout.

    Raises MissingError when the engine does not have it.
    """
    client = docker.APIClient(base_url=engine.host)
    try:
        yield client.get_image(digest, chunk_size=CHUNK)
    except docker.errors.ImageNotFound:
        raise registry_errors.MissingError(f"the engine has no image {digest}\nbuild it again") from None
    finally:
        client.close()
