"""`publish --stargz` with a real engine, registry and cosign; benchmarks/lazy_pull.py runs the snapshotter itself."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.core import paths
from rdma_images.plan import matrix
from rdma_images.publish import publish_images
from rdma_images.publish.keys import Signer, Trust
from rdma_images.publish.publisher import Publisher
from rdma_images.publish.push import PushPolicy
from rdma_images.publish.verify import verify
from tests.e2e import private_engine
from tests.e2e.publish_parts import (
    PASSWORD,
    SUITE,
    USER,
    Registry,
    build_small,
    cosign_key,
    green,
    placed,
    planned_image,
    registry_program,
    write_steps,
)

pytestmark = [pytest.mark.e2e, pytest.mark.part("small-images"), private_engine.needs]
ZSTD = "oci-mediatypes=true,compression=zstd,force-compression=true"


def test_the_converted_image_is_signed_and_names_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_REGISTRY_USER", USER)
    monkeypatch.setenv("TEST_REGISTRY_PASSWORD", PASSWORD)
    monkeypatch.setenv("COSIGN_PASSWORD", "pass phrase")
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    engine, image = engines.ensure(print), planned_image()
    private_key, public_key = cosign_key(tmp_path / "key")
    registry = Registry(registry_program(), tmp_path / "registry").start()
    small = build_small(engine, tmp_path / "context", "stargz", layers=2, size=1 << 20, output=ZSTD)
    write_steps(image, *green(image, small))
    items = publish_images.approved_images([image], [image], matrix.load(), SUITE)
    publisher = Publisher(
        engine=lambda: engine,
        progress=print,
        signer=Signer(str(private_key)),
        push_policy=PushPolicy(3, 0.1, 60),
        to_stargz=True,
    )
    try:
        (first,), (second,) = (publish_images.publish(items, {"local": registry.entry()}, publisher) for _ in range(2))
        converted = placed(first).stargz
        assert converted
        assert placed(second).stargz == replace(converted, result="present")
        assert registry.tags("training/efa-pytorch") == {image.tag, f"{image.tag}-stargz", "2.15", "latest"}
        assert not list(paths.state_folder().glob("stargz-*"))

        trust = Trust(key=str(public_key))
        index, original = verify(f"{registry.host}/training/efa-pytorch:{converted.tag}", registry.entry(), trust)
    finally:
        registry.kill()
        engines.client(engine).images.remove(small.ref, force=True)
    assert {finding.check: finding.detail for finding in index.findings} == {
        "signature": f"by {trust}",
        "platforms": "linux/amd64",
    }
    assert original.ref == placed(first).ref
    assert original.holds
    (same,) = (finding for finding in original.findings if finding.check == "original")
    assert same.detail.endswith("has the same config")
