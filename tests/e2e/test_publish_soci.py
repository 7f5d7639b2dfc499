"""`publish --lazy soci` with a real engine, registry, cosign and soci.

The last one has containerd with SOCI's snapshotter, too. Neither is in a package of the Debian that CI has: where they
are not on the PATH, these tests are skipped.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.core import paths
from rdma_images.engine.docker_command import Engine
from rdma_images.publish import soci
from rdma_images.publish.destination import open_destination
from rdma_images.publish.keys import Trust
from rdma_images.publish.verify import verify
from tests.e2e.lazy_parts import HOST, built, mounted, node, publish, registry_with_login, run, write_login
from tests.e2e.publish_parts import (
    PASSWORD,
    USER,
    Registry,
    cosign_key,
    placed,
    planned,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("soci") is None, reason="there is no soci on the PATH"),
]


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
    with built(engine, tmp_path, "gzip") as small:
        first = placed(publish(engine, registry, small, soci.find_program(), key))
        second = placed(publish(engine, registry, small, soci.find_program(), key))
    image = planned()
    assert first.lazy
    assert second.lazy == replace(first.lazy, result="present")
    assert first.ref.endswith(small.digest)
    assert registry.tags("training/efa-pytorch") == {image.tag, f"{image.tag}-soci", "2.15", "latest"}
    assert not list(paths.state_folder().glob("soci-*"))

    trust = Trust(key=str(public))
    index, original = verify(f"{registry.host}/training/efa-pytorch:{first.lazy.tag}", registry.entry(), trust)
    assert index.ref == first.lazy.ref
    assert {finding.check: finding.detail for finding in index.findings} == {
        "signature": f"by {trust}",
        "platforms": "linux/amd64",
        "SOCI index": "2 of 2 layers can be read in part",
    }
    assert index.holds
    assert original.ref == first.ref
    assert {finding.check: finding.holds for finding in original.findings}.items() >= {
        "original": True,
        "signature": True,
        "tag": True,
        "signed report": True,
        "signed provenance": True,
    }.items()


def test_what_another_signer_converted_is_converted_again(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    key, public = cosign_key(tmp_path / "key")
    with built(engine, tmp_path, "gzip") as small:
        unsigned = placed(publish(engine, registry, small, soci.find_program())).lazy
        signed = placed(publish(engine, registry, small, soci.find_program(), key)).lazy
    assert unsigned
    assert signed == unsigned  # soci writes the same bytes again
    index, _ = verify(signed.ref, registry.entry(), Trust(key=str(public)))
    assert index.holds


def test_an_image_of_zstd_is_refused_before_it_is_sent(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    with built(engine, tmp_path, "zstd") as small:
        result = publish(engine, registry, small, soci.find_program())
    assert "build it with `invoke build --compression gzip`" in result.error
    assert result.copy is None
    assert registry.tags("training/efa-pytorch") == set()


@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("containerd", "ctr", "soci-snapshotter-grpc"))),
    reason="mounting a layer needs root, and containerd, ctr and soci-snapshotter-grpc on the PATH",
)
def test_the_snapshotter_reads_parts_of_the_published_layers(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    with built(engine, tmp_path, "gzip") as small:
        lazy = placed(publish(engine, registry, small, soci.find_program())).lazy
    assert lazy
    image = f"{registry.host}/training/efa-pytorch:{lazy.tag}"
    folder = tmp_path / "n"
    write_login(folder, registry.host)
    host = HOST.format(host=registry.host, address=f"http://{registry.host}")
    with node(folder, "soci", "soci-snapshotter-grpc", f"{SNAPSHOTTER}{host}") as ctr:
        login = ("--plain-http", "--user", f"{USER}:{PASSWORD}")
        run(*ctr, "images", "pull", *login, "--snapshotter", "soci", image)
        log = (folder / "soci-snapshotter-grpc.log").read_text()
        assert log.count("remote snapshot successfully prepared") == 2, log
        content = run(*ctr, "content", "list", "--quiet").split()
        layers = open_destination("local", registry.entry()).repository("efa-pytorch").manifest(small.digest).layers()
        assert not {layer.digest for layer in layers} & set(content)  # nothing of them was downloaded
        with mounted(ctr, "soci", image, tmp_path / "view") as view:
            for name in ("layer0", "layer1"):
                assert (view / name).read_bytes() == (tmp_path / "context" / name).read_bytes()


SNAPSHOTTER = """\
no_prometheus = true
skip_check_snapshotter_supported = true
"""
