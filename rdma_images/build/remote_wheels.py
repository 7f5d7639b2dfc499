"""Compiled wheels in a registry: one machine compiles, and the others take what it sent.

Each is an artifact with one file, under a tag with the key of what decided the wheel.
"""

import hashlib
import threading
from functools import partial
from pathlib import Path

from packaging.utils import parse_wheel_filename

from rdma_images.core import files
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import format_megabytes
from rdma_images.registry import faults
from rdma_images.registry.client import EMPTY, TITLE, Descriptor, Repository, artifact

ARTIFACT = "application/vnd.rdma-images.wheel"


def fetch(key: str, repository: Repository, folder: Path, progress: Progress = silent) -> bool:
    """Write the wheel of a key into a folder; False where the registry does not have it.

    Raises:
        PublishError: The registry does not answer, or what it has is damaged.
    """
    try:
        manifest = repository.manifest(_tag(key))
    except faults.MissingError:
        return False
    try:
        (wheel,) = manifest.layers()
        name = wheel.annotations[TITLE]
        parse_wheel_filename(name)
    except (ValueError, LookupError):
        name = ""
    if not name or "/" in name:
        raise faults.MalformedError(f"{repository.ref}:{_tag(key)} is no wheel\ndelete the tag there")
    save = partial(repository.save, wheel.digest, folder / name, threading.Event())
    faults.retry(save, faults.CACHE_ATTEMPTS, faults.CACHE_FIRST_WAIT, progress=progress)
    progress(f"{name}: compiled before, {format_megabytes(wheel.size)} taken from {repository.ref}")
    return True


def send(key: str, repository: Repository, folder: Path, progress: Progress = silent) -> None:
    """Send the wheel in a folder, and then the tag under which it is looked up.

    Raises:
        PublishError: The registry does not take it.
    """
    (wheel,) = folder.glob("*.whl")
    faults.retry(
        partial(_send, key, repository, wheel), faults.CACHE_ATTEMPTS, faults.CACHE_FIRST_WAIT, progress=progress
    )
    progress(f"{wheel.name}: sent to {repository.ref}")


def _send(key: str, repository: Repository, wheel: Path) -> None:
    with files.as_file_error(wheel), wheel.open("rb") as content:
        digest = f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
        size = wheel.stat().st_size
        if not repository.has_blob(digest, size):
            content.seek(0)
            repository.upload(repository.begin_upload(digest), digest, content)
    repository.put_blob(EMPTY)
    repository.put_manifest(_tag(key), artifact(Descriptor(ARTIFACT, digest, size, {TITLE: wheel.name})))


def _tag(key: str) -> str:
    return f"wheel-{key[:40]}"
