"""Measurements of images to which a fabric is added, in the state folder, by digest."""

import re
from pathlib import Path

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import ExistingImage
from rdma_images.core.paths import COMMAND, state_folder
from rdma_images.core.step_files import step_file

REFERENCE = re.compile(r"[a-z0-9][\w.:/-]*@sha256:[0-9a-f]{64}")
RECORD = step_file("image.json", "plan", ExistingImage)


def check(ref: str) -> None:
    """Raise RefusedError for a reference that can lead to another image tomorrow."""
    if problem := reference_problem(ref):
        raise RefusedError(f"--onto {problem}")


def reference_problem(ref: str) -> str | None:
    """Return why `ref` cannot name an image that a fabric is added to; None where it can."""
    if REFERENCE.fullmatch(ref):
        return None
    name = ref.partition("@")[0] or "NAME"
    return (
        f"{ref}: names no digest, and a tag can be moved\n"
        f"write NAME@sha256:…; `docker image inspect --format '{{{{.Id}}}} {{{{.RepoDigests}}}}' {name}` shows it"
    )


def find(ref: str) -> ExistingImage | None:
    """Return the measurements of the image `ref`; None without any by this version."""
    record = RECORD.load(_path(ref)) if _path(ref).exists() else None
    return record if record and record.ref == ref else None


def read_record(ref: str, target: str) -> ExistingImage:
    """Return the measurements of the image `ref`. Raises RefusedError for none here."""
    if record := find(ref):
        return record
    fix = f"run `{COMMAND} plan --target {target}` first"
    raise RefusedError(f"{target}: {ref} was not measured on this machine\n{fix}")


def write(image: ExistingImage) -> None:
    """Keep what was measured in an image."""
    RECORD.save(_path(image.ref), image)


def _path(ref: str) -> Path:
    return state_folder() / "onto" / f"{ref.rpartition(':')[2]}.json"
