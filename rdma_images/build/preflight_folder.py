"""The preflight of jobs as the folder of plain files that every image carries."""

import hashlib
import json
import tarfile
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from pathlib import Path

from rdma_images.core import atomic, paths
from rdma_images.core.image import LABEL_PREFIX, Image
from rdma_images.facts import facts_file
from rdma_images.facts.nccl_logs import NcclLogFacts

FOLDER = "/opt/rdma-images/preflight"  # in the image
PROGRAM = "/usr/local/bin/rdma-preflight"  # a link to the program in it
ARCHIVE = "preflight.tar"  # beside the image's Dockerfile, which adds it
PACKAGES = ("nccl_logs", "preflight")  # whose modules the folder has, beside each other


@cache
def files() -> Mapping[str, bytes]:
    """Return the folder's files by name: programs, what NCCL's lines mean, and their version."""
    contents = {
        path.name: path.read_bytes()
        for package in PACKAGES
        for path in sorted((paths.PACKAGE / package).iterdir())
        if path.is_file() and path.name != "__init__.py"
    }
    patterns = json.dumps(facts_file.read(NcclLogFacts).plain(), indent=1, ensure_ascii=False) + "\n"
    contents["nccl-logs.json"] = patterns.encode()
    rows = [f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents)]
    digest = hashlib.sha256("".join(rows).encode()).hexdigest()
    return {**contents, "version": f"{digest[:12]}\n".encode()}


def version() -> str:
    """Return the preflight's version: the beginning of the SHA-256 of its files."""
    return files()["version"].decode().strip()


def label() -> dict[str, str]:
    """Return the label by which an image names its preflight's version."""
    return {f"{LABEL_PREFIX}.preflight": version()}


def pack(image: Image) -> None:
    """Write the layer's tar beside an image's Dockerfile. Equal files make an equal tar."""
    path = paths.image_folder(image.id) / ARCHIVE
    with atomic.replacing(path) as temporary, tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted(files().items()):
            member = tarfile.TarInfo(f"{FOLDER}/{name}".lstrip("/"))
            member.mode, member.size = _mode(name), len(content)
            archive.addfile(member, BytesIO(content))
        link = tarfile.TarInfo(PROGRAM.lstrip("/"))
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, f"{FOLDER}/rdma-preflight", 0o777
        archive.addfile(link)


def write(folder: Path) -> None:
    """Write the files to a folder, for images that lack them. Raises RdmaImagesError where that fails."""
    for name, content in files().items():
        atomic.write(folder / name, content.decode())
        (folder / name).chmod(_mode(name))


def _mode(name: str) -> int:
    return 0o755 if name == "rdma-preflight" else 0o644
