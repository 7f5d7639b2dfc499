"""Find the file of a locked wheel on the package index, download and verify it."""

import shutil
from dataclasses import replace
from pathlib import Path

from rdma_images.core import locking
from rdma_images.core.errors import RdmaImagesError
from rdma_images.inputs import download_store, index_client
from rdma_images.inputs.download import ChecksumError, DownloadSettings, download_verified
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Wheel


def fetch_wheel(wheel: Wheel, index: str, job: DownloadSettings) -> Path:
    """Return the verified file of a wheel, under its own name; `remove_wheel` removes it.

    A part that an earlier run left is resumed.

    Args:
        index: The package index's address.

    Raises:
        RdmaImagesError: The file does not arrive.
        ChecksumError: The file is not the locked one; it is removed.
    """
    file = _folder(wheel) / wheel.file
    with locking.hold(f"wheel-{wheel.sha256[:16]}", f"downloading {wheel.file}", job.progress):
        if file.exists() and _is_locked_file(wheel, file):
            return file
        part = download_store.root() / "partial" / wheel.sha256 / wheel.file
        address = wheel_address(wheel, index, job.mirrors)
        download_verified(address, part, replace(job, name=wheel.file), lambda file: _verify(wheel, address, file))
        file.parent.mkdir(parents=True, exist_ok=True)
        part.replace(file)
        shutil.rmtree(part.parent)
    return file


def remove_wheel(wheel: Wheel) -> None:
    """Remove the file of a wheel with its folder."""
    shutil.rmtree(_folder(wheel), ignore_errors=True)


def wheel_address(wheel: Wheel, index: str, mirrors: Mirrors) -> str:
    """Return the address of a wheel's file. Raises RdmaImagesError where there is none."""
    minors = [int(tag.interpreter[3:]) for tag in wheel.tags if tag.interpreter[:3] == "cp3" and tag.abi != "abi3"]
    python = f"3.{max(minors)}" if minors else index_client.LATEST_PYTHON
    release = index_client.release(wheel.name, wheel.version, index, mirrors, python)
    for file in release.wheels or ():
        if file.filename == wheel.file:
            return file.url or str(file.path)
    raise RdmaImagesError(
        f"{wheel.file}: the package index {index} has no such file\n"
        "lock again, or name an index that has it as package-index in mirrors.yaml"
    )


def _is_locked_file(wheel: Wheel, file: Path) -> bool:
    return file.stat().st_size == wheel.size and download_store.digest(file, "sha256") == wheel.sha256


def _verify(wheel: Wheel, address: str, file: Path) -> None:
    if not _is_locked_file(wheel, file):
        raise ChecksumError(
            f"{wheel.file}: {address} is not the locked file: expected {wheel.size} bytes, sha256:{wheel.sha256}, "
            f"found {file.stat().st_size} bytes, sha256:{download_store.digest(file, 'sha256')}; nothing was kept\n"
            "do not use the file: the index or mirror has another one"
        )


def _folder(wheel: Wheel) -> Path:
    return download_store.root() / "wheels" / wheel.sha256
