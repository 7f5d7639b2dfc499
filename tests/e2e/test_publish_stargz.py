"""`publish --stargz` with a real engine, registry, cosign and stargz-snapshotter.

The snapshotter is in no package: where it is not on the PATH, the test that has a node is skipped.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rdma_images import engine as engines
from rdma_images.core import paths
from rdma_images.engine import private
from rdma_images.engine.docker_command import Engine
from rdma_images.publish import stargz
from rdma_images.publish.keys import Trust
from rdma_images.publish.verify import verify
from rdma_images.registry.client import OCI_MANIFEST, Descriptor, Manifest, Repository, canonical, sha256_digest
from rdma_images.registry.connection import Connection
from tests.e2e.lazy_parts import HOST, built, mounted, node, publish, registry_with_login, run
from tests.e2e.publish_parts import (
    Registry,
    cosign_key,
    placed,
    planned,
    registry_program,
)
from tests.unit.layers.test_tar_layer import MEMBERS, make_tar, member

obstacle = private.obstacle()
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(obstacle is not None, reason=str(obstacle))]
PROGRAM = "containerd-stargz-grpc"
ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engines.ensure(print)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with registry_with_login(tmp_path, monkeypatch) as server:
        yield server


def test_the_converted_image_is_signed_and_names_the_original(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    key, public = cosign_key(tmp_path / "key")
    with built(engine, tmp_path, "zstd") as small:
        first = placed(publish(engine, registry, small, key))
        second = placed(publish(engine, registry, small, key))
    image = planned()
    assert first.stargz
    assert second.stargz == replace(first.stargz, result="present")
    assert registry.tags("training/efa-pytorch") == {image.tag, f"{image.tag}-stargz", "2.15", "latest"}
    assert not list(paths.state_folder().glob("stargz-*"))

    trust = Trust(key=str(public))
    index, original = verify(f"{registry.host}/training/efa-pytorch:{first.stargz.tag}", registry.entry(), trust)
    assert {finding.check: finding.detail for finding in index.findings} == {
        "signature": f"by {trust}",
        "platforms": "linux/amd64",
    }
    assert original.ref == first.ref
    assert original.holds
    (same,) = (finding for finding in original.findings if finding.check == "original")
    assert same.detail.endswith("has the same config; 2 of its 2 layers have a table, and the same tar")


BELOW = make_tar(
    (member("etc/machine-id", content=b"1"), b"1"),
    (member("var/cache/old", content=b"2"), b"2"),
    (member("usr/lib/kept", content=b"3"), b"3"),
)


def put_image(repository: Repository, tars: tuple[bytes, ...]) -> Manifest:
    """Put an image of layers that have no table, and return its manifest."""
    layers = []
    for tar in tars:
        raw = zstandard.ZstdCompressor().compress(tar)
        layers.append(Descriptor(ZSTD, repository.put_blob(raw), len(raw)).as_json())
    diff_ids = [sha256_digest(tar) for tar in tars]
    config = canonical({"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": diff_ids}})
    media_type = "application/vnd.oci.image.config.v1+json"
    entry = Descriptor(media_type, repository.put_blob(config), len(config)).as_json()
    body = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": entry, "layers": layers}
    return Manifest(OCI_MANIFEST, canonical(body))


@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("containerd", "ctr", "ctr-remote", PROGRAM, "fusermount3"))),
    reason=f"mounting a layer needs root, and containerd, ctr, ctr-remote, {PROGRAM} and fusermount3 on the PATH",
)
def test_a_node_sees_the_same_files_in_part_and_whole(tmp_path: Path) -> None:
    server = Registry(registry_program(), tmp_path / "registry", password=False).start()
    try:
        repository = Repository(Connection(server.host, lambda: None), "training/all-files")
        original = put_image(repository, (BELOW, make_tar(*MEMBERS)))
        repository.put_manifest("whole", original)
        (tmp_path / "scratch").mkdir()
        converted = stargz.convert(original, repository, tmp_path / "scratch")
        for path in converted.files.values():
            repository.put_blob(path.read_bytes())
        repository.put_manifest(converted.image.digest, converted.image)
        repository.put_manifest("lazy", converted.index)

        host = HOST.format(host=server.host, address=server.host)
        with node(tmp_path / "n", "stargz", PROGRAM, host) as ctr:
            lazy, whole = (f"{repository.ref}:{tag}" for tag in ("lazy", "whole"))
            run("ctr-remote", *ctr[1:], "images", "rpull", "--plain-http", lazy)
            content = run(*ctr, "content", "list", "--quiet").split()
            assert not set(converted.files) & set(content)  # nothing of the layers was downloaded
            with mounted(ctr, "stargz", lazy, tmp_path / "view") as view:
                in_part = file_digests(view)
            run(*ctr, "images", "pull", "--plain-http", "--snapshotter", "overlayfs", whole)
            with mounted(ctr, "overlayfs", whole, tmp_path / "whole") as view:
                assert in_part == file_digests(view)
    finally:
        server.kill()
    assert "usr/bin/ping" in in_part
    assert not {"etc/machine-id", "var/cache/old"} & in_part.keys()


def file_digests(root: Path) -> dict[str, Any]:
    """Return all that a program sees of each file, by path."""
    digests: dict[str, Any] = {}
    inodes: dict[tuple[int, int], str] = {}
    # containerd takes a time before 1970 for 1970 when it unpacks.
    described = {info.name.strip("./") for info, _ in MEMBERS if info.mtime >= 0} | {"usr/lib/kept"}
    for path in sorted(root.rglob("*")):
        name, status = str(path.relative_to(root)), path.lstat()
        link = path.readlink() if path.is_symlink() else None
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        names = os.listxattr(path, follow_symlinks=False)
        attributes = {key: os.getxattr(path, key, follow_symlinks=False) for key in names}
        same_as = inodes.setdefault((status.st_dev, status.st_ino), name) if stat.S_ISREG(status.st_mode) else name
        time = status.st_mtime_ns if name in described else None
        digests[name] = (status.st_mode, status.st_uid, status.st_gid, status.st_rdev, time, link, attributes, same_as)
        digests[name] += (sha256_digest(content) if content is not None else None,)
    return digests
