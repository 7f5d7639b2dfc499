"""Two engines that share only a registry cache build disjoint shards, nothing twice."""

from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.engine import private
from rdma_images.engine.debian import bootstrap
from rdma_images.registry.client import Repository
from rdma_images.registry.connection import Connection
from tests.e2e.publish_parts import Registry, build_target, registry_program, second_engine, shared_context

pytestmark = pytest.mark.e2e


def test_the_second_engine_does_not_repeat_the_stages_of_the_first(tmp_path: Path) -> None:
    if obstacle := private.obstacle():
        pytest.skip(f"no second engine can be started here: {obstacle}")
    first = engines.ensure(print)
    context = tmp_path / "context"
    shared_context(context, ["one", "two"], 8 << 20, bootstrap.base("debian13", print))
    registry = Registry(registry_program(), tmp_path / "registry", password=False).start()
    cache = f"{registry.host}/cache"
    try:
        build_target(first, context, "one", cache, write=True)
        with second_engine() as second:
            assert second.host != first.host
            output = build_target(second, context, "two", cache, write=False)
            assert "CACHED" in output
        repository = Repository(Connection(registry.host, lambda: None), "cache")
        layers = {name: repository.manifest(name).layers() for name in ("one", "two")}
        assert layers["one"][0].digest == layers["two"][0].digest
        assert layers["one"][1].digest != layers["two"][1].digest
    finally:
        registry.kill()
        engines.client(first).images.remove(f"{cache}:one", force=True)
