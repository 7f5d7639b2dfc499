"""Convert an image with the program `soci`, for SOCI's snapshotter.

`soci` is looked up on the PATH. 0.13 converts without containerd, and 0.15 is the first that reads a layer of several
gzip streams to its end (base images have such layers) and that needs no root.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rdma_images.core.errors import RdmaImagesError, first_line
from rdma_images.engine import Engine
from rdma_images.publish import engine_blobs
from rdma_images.publish.attachment_checks import VerifyFinding
from rdma_images.publish.conversion import ConvertedImage, LazyForm, index_over
from rdma_images.registry import registry_errors
from rdma_images.registry.client import OCI_INDEX, Descriptor, Manifest, Repository

_OLDEST = (0, 15)
_INSTALL = "install soci 0.15 or later from the releases of awslabs/soci-snapshotter"
_VERSION_SECONDS = 60  # seconds for its version
# What a conversion makes: an index over the image, which has one annotation more, and SOCI's own index. Source:
# github.com/awslabs/soci-snapshotter v0.15.0, soci/soci_convert.go and docs/soci-index-manifest-v2.md.
TYPE = "application/vnd.amazon.soci.index.v2+json"
_INDEX = "com.amazon.soci.index-digest"  # on a converted image: its SOCI index
_IMAGE = "com.amazon.soci.image-manifest-digest"  # on a SOCI index's entry: its image
_LAYER = "com.amazon.soci.image-layer-digest"  # on a table of contents: its layer


@dataclass(frozen=True)
class SociProgram:
    """The soci program."""

    path: Path
    version: str
    form: LazyForm = "soci"

    @property
    def title(self) -> str:
        """Return the program with its version."""
        return f"soci {self.version}"

    def convert(
        self, original: Manifest, _repository: Repository, engine: Callable[[], Engine], scratch: Path
    ) -> ConvertedImage:
        """Return the image as soci converts it, from the engine. `scratch` gets two copies of it."""
        with engine_blobs.archive(engine(), original.digest) as archive:
            return convert(self, archive, original, scratch)


def find_program() -> SociProgram:
    """Return soci 0.15 or later. Raises RdmaImagesError with what to install."""
    if not (path := shutil.which("soci")):
        raise RdmaImagesError(f"there is no soci on the PATH\n{_INSTALL}")
    return _inspect_program(Path(path))


@functools.cache
def _inspect_program(path: Path) -> SociProgram:
    try:
        process = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RdmaImagesError(f"{path} does not run: {error}\n{_INSTALL}") from None
    version = re.search(r"^soci version v?((\d+)\.(\d+)\S*)", process.stdout, re.MULTILINE)
    if version is None or (int(version[2]), int(version[3])) < _OLDEST:
        named = version[1] if version else "it names none"
        raise RdmaImagesError(f"{path} is older than soci 0.15, or no soci at all (its version: {named})\n{_INSTALL}")
    return SociProgram(path, version[1])


def convert(program: SociProgram, archive: Iterable[bytes], original: Manifest, scratch: Path) -> ConvertedImage:
    """Return the image `original` as soci converts it.

    Args:
        program: The program to run.
        archive: The image as an engine saves it: a tar of an OCI layout.
        original: The image's manifest.
        scratch: An empty folder, which gets two copies of the image. The caller removes it.

    Raises:
        PublishError: The program failed, or made something else.
    """
    output = scratch / "converted"
    command = [str(program.path), "convert", "--standalone", "--format", "oci-dir", "/dev/stdin", str(output)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        with suppress(BrokenPipeError), process:  # where it ends early, its own words say why
            assert process.stdin
            for chunk in archive:
                process.stdin.write(chunk)
        log.seek(0)
        lines = log.read().decode(errors="replace").splitlines()
    if process.returncode != 0:
        reason = next((line for line in reversed(lines) if line.startswith("soci: ")), "soci: no reason given")
        raise registry_errors.PublishError(
            f"soci {program.version} does not convert {original.digest}: {reason.removeprefix('soci: ')}\n"
            f"it needs twice the image's size below {scratch.parent}, and a layer of 10 MiB or more"
        )
    try:
        return _read(output, original)
    except (OSError, ValueError, KeyError, TypeError, registry_errors.MalformedError) as error:
        raise registry_errors.PublishError(
            f"soci {program.version} made something else of {original.digest}: {error}\n{_INSTALL}"
        ) from None


def _read(layout: Path, original: Manifest) -> ConvertedImage:
    """Return the content of soci's OCI layout. Raises ValueError if not of `original`."""

    def read_blob(digest: str) -> bytes:
        return (layout / "blobs" / digest.replace(":", "/")).read_bytes()

    (root,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    entries = Manifest(OCI_INDEX, read_blob(root["digest"])).members()
    (image_entry,) = (entry for entry in entries if not is_soci_index(entry))
    (soci_entry,) = filter(is_soci_index, entries)
    image, soci_index = (Manifest(entry.media_type, read_blob(entry.digest)) for entry in (image_entry, soci_entry))
    if not has_same_content(image, original):
        raise ValueError("its layers are others")
    index = index_over(image_entry, original, soci_entry)
    parts = [Descriptor.from_json(soci_index.body["config"]), *soci_index.layers()]
    return ConvertedImage(index, (image, soci_index), tuple(read_blob(part.digest) for part in parts))


def is_soci_index(entry: Descriptor) -> bool:
    """Return whether an entry of an index leads to a SOCI index, and not to an image."""
    return entry.artifact_type == TYPE


def has_same_content(image: Manifest, other: Manifest) -> bool:
    """Return whether two manifests name the same config and the same layers in the same order."""
    contents = [
        (Descriptor.from_json(manifest.body.get("config")).digest, [layer.digest for layer in manifest.layers()])
        for manifest in (image, other)
    ]
    return contents[0] == contents[1]


def findings(repository: Repository, index: Manifest, images: Mapping[str, Manifest]) -> Iterator[VerifyFinding]:
    """Yield a finding for each SOCI index in `index`, given its images by digest."""
    for entry in filter(is_soci_index, index.members()):
        try:
            yield _finding(repository, entry, images)
        except (registry_errors.MalformedError, registry_errors.MissingError, registry_errors.ConflictError) as error:
            yield VerifyFinding("SOCI index", False, f"{entry.digest} cannot be read: {first_line(error)}")


def _finding(repository: Repository, entry: Descriptor, images: Mapping[str, Manifest]) -> VerifyFinding:
    image = images.get(entry.annotations.get(_IMAGE, ""))
    if image is None or (image.body.get("annotations") or {}).get(_INDEX) != entry.digest:
        return VerifyFinding("SOCI index", False, f"{entry.digest} belongs to no image of this index")
    layers = {layer.digest for layer in image.layers()}
    tables = repository.manifest(entry.digest).layers()
    if foreign := {table.annotations.get(_LAYER, "no layer") for table in tables} - layers:
        return VerifyFinding("SOCI index", False, f"{entry.digest} is about other layers: {', '.join(sorted(foreign))}")
    if missing := [table.digest for table in tables if not repository.has_blob(table.digest, table.size)]:
        return VerifyFinding("SOCI index", False, f"{entry.digest} has not arrived: {', '.join(missing)}")
    return VerifyFinding("SOCI index", True, f"{len(tables)} of {len(layers)} layers can be read in part")
