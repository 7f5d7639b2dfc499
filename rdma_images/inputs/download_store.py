"""Verified downloads by content: <state>/downloads/sha256/<digest>/<file name>."""

import hashlib
import shutil
from pathlib import Path

from rdma_images.core import atomic, paths, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.source import Source


class DownloadRecord(yaml_file.Strict):
    """The verified file of a source, its size in bytes, and the pin it fits."""

    pin: str
    sha256: str
    file: str
    size: int


def store_folder() -> Path:
    """Return the folder of all downloads."""
    return paths.state_folder() / "downloads"


def cached_file(source: Source) -> Path | None:
    """Return the verified file of a source; None where it is to be downloaded.

    Looks at names and size only.
    """
    try:
        record = DownloadRecord.model_validate_json(_record(source).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    file = store_folder() / "sha256" / record.sha256 / record.file
    return file if record.pin == source.pin and file.exists() and file.stat().st_size == record.size else None


def save(source: Source, verified: Path, name: str) -> Path:
    """Move a verified file into the store, and return its path there."""
    kind, _, pinned = source.pin.partition(":")
    value = pinned if kind == "sha256" else file_digest(verified, "sha256")
    file = store_folder() / "sha256" / value / name
    file.parent.mkdir(parents=True, exist_ok=True)
    size = verified.stat().st_size
    verified.replace(file)
    record = DownloadRecord(pin=source.pin, sha256=value, file=name, size=size)
    atomic.write(_record(source), record.model_dump_json(indent=1) + "\n")
    return file


def remove(source: Source) -> None:
    """Remove the verified file of a source that is pinned by its sha256."""
    shutil.rmtree(store_folder() / "sha256" / source.pin.partition(":")[2], ignore_errors=True)
    _record(source).unlink(missing_ok=True)


def file_digest(file: Path, algorithm: str) -> str:
    """Return the hexadecimal digest of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def file_name(address: str) -> str:
    """Return the file name at the end of an address. Raises RefusedError for none."""
    name = address.split("?", 1)[0].rstrip("/").rsplit("/", 1)[-1]
    if not name or name.startswith("."):
        raise RefusedError(f"{address} names no file\nwrite an address that ends with the file's name")
    return name


def _record(source: Source) -> Path:
    return store_folder() / "sources" / f"{source.id}.json"
