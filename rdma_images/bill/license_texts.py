"""Pack the licence texts of an image into one archive, each under its path in the image."""

import gzip
import io
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import docker

from rdma_images.bill.parts import BillPart
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.stream import CHUNK, ChunkReader
from rdma_images.engine import Engine

MEDIA_TYPE = "application/vnd.rdma-images.licenses.v1.tar+gzip"
NAME = "licenses.tar.gz"
# What Debian's copyright files refer to.
COMMON = "/usr/share/common-licenses"
# Read as a whole: a request for each file takes longer than the folder.
_FOLDER = re.compile(r"/usr/share/doc(?=/)|/.*?\.dist-info(?=/)")
_LARGEST = 16 << 20  # bytes of one text; the longest of torch's has 0.6 MB


def pack(engine: Engine, digest: str, parts: Sequence[BillPart]) -> bytes:
    """Return the licence texts of `parts` as a tar.gz; b"" without any.

    The same image gives the same bytes. No program of the image runs.

    Args:
        engine: Has the image.
        digest: Of the image; the archive names it in its header.
        parts: Of the image's report; a text that the image does not have is left out.

    Raises:
        RdmaImagesError: The engine does not have the image, or does not hand out its files.
    """
    text_paths = {text for part in parts for text in part.texts}
    try:
        texts = _read_texts(engine, digest, text_paths)
    except docker.errors.DockerException as error:
        fix = "build or pull the image, and try again"
        raise RdmaImagesError(f"the licence texts of {digest} cannot be read in the engine: {error}\n{fix}") from None
    if not texts:
        return b""
    packed = io.BytesIO()
    name = f"{digest.removeprefix('sha256:')}.tar"
    with (
        gzip.GzipFile(filename=name, mode="wb", fileobj=packed, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, content in sorted(texts.items()):
            member = tarfile.TarInfo(path.removeprefix("/"))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _read_texts(engine: Engine, digest: str, text_paths: set[str]) -> dict[str, bytes]:
    """Return the texts that the image has, by their paths."""

    def is_text(path: str) -> bool:
        return path in text_paths or path.startswith(f"{COMMON}/")

    with closing(docker.APIClient(base_url=engine.host)) as client:
        container = client.create_container(digest, command=["none"])["Id"]
        try:
            folders = {match[0] for match in map(_FOLDER.match, text_paths) if match}
            texts = dict(_files(client, container, {*folders, COMMON}, is_text))
            # Files behind links, and in other folders, are read one by one.
            texts |= dict(_files(client, container, text_paths - texts.keys(), is_text))
        finally:
            client.remove_container(container, v=True)
    return texts


def _files(
    client: docker.APIClient, container: str, paths: set[str], is_text: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    """Yield the texts at or below `paths`; a link at a path is followed once."""
    for path in sorted(paths):
        try:
            content, status = client.get_archive(container, path, chunk_size=CHUNK)
            if status and status["linkTarget"]:
                content, _ = client.get_archive(container, status["linkTarget"], chunk_size=CHUNK)
        except docker.errors.NotFound:
            continue
        with tarfile.open(fileobj=io.BufferedReader(ChunkReader(content), CHUNK), mode="r|") as archive:
            for member in archive:
                below = member.name.partition("/")[2]
                file_path = f"{path}/{below}" if below else path
                if member.isreg() and member.size <= _LARGEST and is_text(file_path):
                    file = archive.extractfile(member)
                    yield file_path, file.read() if file else b""
