"""An image with tables is the same image; one with other files does not hold."""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.layers import seekable_layer, tar_layer
from rdma_images.publish import stargz
from rdma_images.publish.attach import attach
from rdma_images.publish.stargz import CONVERTED_FROM, ConvertedImage, require_zstd
from rdma_images.publish.verify import verify
from rdma_images.registry import registry_errors
from rdma_images.registry.client import OCI_MANIFEST, Descriptor, Manifest, Repository, canonical, index_manifest
from rdma_images.registry.connection import Connection
from rdma_images.registry.registries import Oci
from tests.support.lazy_reader import LazyReader
from tests.support.publish_doubles import Store, served
from tests.support.published_image import approve, make_artifacts, put_image

ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"


def tar_with(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


WHEELS, SYSTEM = tar_with(torch=b"torch" * 1000), tar_with(su=b"su", ping=b"ping" * 500)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def repository(store: Store) -> Iterator[Repository]:
    with served(store.handler()) as host:
        yield Repository(Connection(host, lambda: None), "training/efa-pytorch")


def put_layer(repository: Repository, raw: bytes, toc: str = "") -> Descriptor:
    return Descriptor(ZSTD, repository.put_blob(raw), len(raw), {seekable_layer.ANNOTATION: toc} if toc else {})


def put_original(repository: Repository, image: Image) -> Manifest:
    """Put an image, one layer with a table and one without, with its evidence."""
    out = io.BytesIO()
    wheels = tar_layer.write(io.BytesIO(WHEELS), out)
    layers = [
        put_layer(repository, out.getvalue(), wheels.toc),
        put_layer(repository, zstandard.ZstdCompressor().compress(SYSTEM)),
    ]
    body = put_image(repository, image).body | {"layers": [layer.as_json() for layer in layers]}
    original = Manifest(OCI_MANIFEST, canonical(body))
    repository.put_manifest("v1", original)
    attach(make_artifacts(approve(image, original.digest)), original.descriptor, repository)
    return original


def convert(repository: Repository, original: Manifest, scratch: Path) -> ConvertedImage:
    scratch.mkdir(exist_ok=True)
    return stargz.convert(original, repository, scratch)


def put(repository: Repository, converted: ConvertedImage) -> None:
    for path in converted.files.values():
        repository.put_blob(path.read_bytes())
    repository.put_manifest(converted.image.digest, converted.image)
    repository.put_manifest("v1-stargz", converted.index)


def index_over(image: Manifest, original: Manifest) -> Manifest:
    platform = {"os": "linux", "architecture": "amd64"}
    return index_manifest([replace(image.descriptor, platform=platform, annotations={CONVERTED_FROM: original.digest})])


def findings(repository: Repository) -> dict[str, tuple[bool | None, str]]:
    entry = Oci(kind="oci", host=repository.ref.partition("/")[0], credentials="none")
    verifications = verify(f"{repository.ref}:v1-stargz", entry, None)
    return {finding.check: (finding.holds, finding.detail) for checked in verifications for finding in checked.findings}


def test_only_the_layer_without_a_table_is_written(repository: Repository, image: Image, tmp_path: Path) -> None:
    original = put_original(repository, image)
    converted = convert(repository, original, tmp_path / "scratch")
    manifest = converted.image
    wheels, system = manifest.layers()
    assert wheels == original.layers()[0]
    assert manifest.body["config"] == original.body["config"]
    raw = converted.files[system.digest].read_bytes()
    assert (system.digest, system.size) == (f"sha256:{hashlib.sha256(raw).hexdigest()}", len(raw))
    toc = system.annotations[seekable_layer.ANNOTATION]
    assert LazyReader(len(raw), toc, lambda offset, length: raw[offset:][:length]).read("su") == b"su"
    assert zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True).read() == SYSTEM
    assert convert(repository, original, tmp_path / "again").index == converted.index


def test_it_holds_by_the_evidence_of_its_original(repository: Repository, image: Image, tmp_path: Path) -> None:
    put(repository, convert(repository, put_original(repository, image), tmp_path / "scratch"))
    by_check = findings(repository)
    assert not [check for check, (holds, _) in by_check.items() if holds is False]
    assert by_check["original"][0]
    assert by_check["original"][1].endswith("has the same config")
    assert by_check["platforms"] == (True, "linux/amd64")


def test_another_config_than_the_original_s_does_not_hold(repository: Repository, image: Image, tmp_path: Path) -> None:
    original = put_original(repository, image)
    converted = convert(repository, original, tmp_path / "scratch")
    config = {"digest": repository.put_blob(canonical({"os": "linux", "architecture": "amd64", "config": {}}))}
    changed = Manifest(OCI_MANIFEST, canonical(converted.image.body | {"config": config}))
    put(repository, ConvertedImage(index_over(changed, original), changed, {}))
    assert findings(repository)["original"][0] is False


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"no layer", registry_errors.MalformedError),
        (zstandard.ZstdCompressor().compress(b"no tar" * 100), tar_layer.TarError),
    ],
)
def test_a_layer_without_a_tar_is_not_converted(
    repository: Repository, image: Image, tmp_path: Path, content: bytes, error: type[Exception]
) -> None:
    original = put_original(repository, image)
    body = original.body | {"layers": [put_layer(repository, content).as_json()]}
    with pytest.raises(error):
        convert(repository, Manifest(OCI_MANIFEST, canonical(body)), tmp_path / "scratch")


def test_an_image_of_another_compression_is_refused() -> None:
    layer = Descriptor("application/vnd.oci.image.layer.v1.tar+gzip", "sha256:" + "1" * 64, 1)
    manifest = Manifest(OCI_MANIFEST, canonical({"layers": [layer.as_json()]}))
    with pytest.raises(RefusedError, match="build --compression zstd"):
        require_zstd(manifest)
