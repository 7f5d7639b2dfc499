"""Find the file of a locked wheel on the package index, download and verify it."""

from pathlib import Path

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.source import Source
from rdma_images.inputs import download_store, fetch, index_queries
from rdma_images.inputs.download import DownloadSettings
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Wheel


def fetch_wheel(wheel: Wheel, index: str, settings: DownloadSettings) -> Path:
    """Return the verified file of a wheel, under its own name; `remove_wheel` removes it.

    Raises:
        RdmaImagesError: The file does not arrive.
        ChecksumError: The file is not the locked one; it is removed.
    """
    return fetch.fetch_file(_source(wheel), lambda: wheel_address(wheel, index, settings.mirrors), settings)


def remove_wheel(wheel: Wheel) -> None:
    """Remove the file of a wheel."""
    download_store.remove(_source(wheel))


def wheel_address(wheel: Wheel, index: str, mirrors: Mirrors) -> str:
    """Return the address of a wheel's file. Raises RdmaImagesError if the index lists no such file."""
    minors = [int(tag.interpreter[3:]) for tag in wheel.tags if tag.interpreter[:3] == "cp3" and tag.abi != "abi3"]
    python = f"3.{max(minors)}" if minors else index_queries.LATEST_PYTHON
    release = index_queries.find_release(wheel.name, wheel.version, index, mirrors, python)
    for file in release.wheels or ():
        if file.filename == wheel.file:
            return file.url or str(file.path)
    raise RdmaImagesError(
        f"{wheel.file}: the package index {index} has no such file\n"
        "lock again, or name an index that has it as package-index in mirrors.yaml"
    )


def _source(wheel: Wheel) -> Source:
    """Return a wheel as a source; the index knows its address."""
    return Source(wheel.file, "wheel", "download", wheel.file, f"sha256:{wheel.sha256}")
