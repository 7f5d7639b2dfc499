"""Repair what a dead push left incomplete in a registry: nothing else does.

A registry that is killed while it notes that a repository has something keeps an empty note, and answers HTTP 500 to
whoever asks for that thing (seen with docker-registry 2.8.2). docker asks before it sends, and so never sends it again.
"""

import time
from contextlib import suppress

from rdma_images.engine import Engine
from rdma_images.publish import engine_blobs
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Repository

_WAITS = (0.5, 1.0, 0.0)  # seconds after each question: a registry's short trouble is over by then


def send_again(engine: Engine, image: str, repository: Repository, missing_part: str) -> None:
    """Send one part of the image `image` without asking whether it is there.

    Raises the PublishError of a registry that fails at more than this one thing, before anything is read.
    """
    kind, _, reference = missing_part.partition("/")
    if kind == "blobs":
        upload = repository.begin_upload(reference)
        with engine_blobs.blob(engine, image, reference) as content:
            repository.upload(upload, reference, content)
    else:
        repository.put_manifest(reference, engine_blobs.manifest(engine, image))


def digest_under(tag: str, repository: Repository) -> str | None:
    """Return the digest of a tag that will be written; None where it leads nowhere.

    A tag at which the registry fails, asked three times, is half noted and leads nowhere.
    """
    for wait in _WAITS:
        with suppress(registry_errors.InternalError):
            return repository.head(tag)
        time.sleep(wait)
    return None
